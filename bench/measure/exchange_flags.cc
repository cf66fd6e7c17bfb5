// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_flags.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "app/old_flags.h"
#include "app/transport_flags.h"
#include "bench/measure/exchange_worker.h"
#include "bench/measure/model_tables.h"

namespace sluice::bench {
namespace {

void AddGradientFlags(CLI::App* command, ExchangeGradients* gradients) {
  CLI::Option* const model = command
                                 ->add_option("--model", gradients->model,
                                              "Model whose tensors are exchanged: " +
                                                  absl::StrJoin(ModelTableNames(), ", "))
                                 ->type_name("NAME")
                                 ->capture_default_str();
  command
      ->add_option("--table", gradients->table_path,
                   "Tensors from a file instead: on each line a name and its dimensions, e.g. "
                   "fc1.weight 256 784")
      ->type_name("FILE")
      ->excludes(model);
  command
      ->add_option("--elements", gradients->elements,
                   "Reduce all tensors to about this many elements in total")
      ->type_name("N");
  command
      ->add_option("--seed", gradients->seed, "Seed of the gradients: equal seeds give equal bytes")
      ->type_name("N")
      ->capture_default_str();
}

void AddWhat(CLI::App* command, ExchangeBenchOptions* options) {
  AddGradientFlags(command, &options->gradients);
  command
      ->add_option("--spec", options->spec,
                   "Codec from workers to shards [topk:1%+int4]; another codec without --down-spec "
                   "applies to both directions")
      ->type_name("SPEC");
  command
      ->add_option("--down-spec", options->down_spec, "Codec from shards to workers [topk:3%+int4]")
      ->type_name("SPEC");
  command->add_option("--workers", options->workers, "Processes with gradients")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--shards", options->shards, "Server processes")
      ->check(CLI::Range(1, 256))
      ->type_name("K")
      ->capture_default_str();
  command
      ->add_option("--set", options->sets,
                   "Another key of the job, e.g. compression.bundle_bytes=512KiB; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void AddHow(CLI::App* command, ExchangeBenchOptions* options) {
  command->add_option("--warmup", options->warmup, "Exchanges before the measured ones")
      ->check(CLI::Range(0, 100000))
      ->type_name("K")
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Exchanges to measure")
      ->check(CLI::Range(1, 100000))
      ->type_name("K")
      ->capture_default_str();
  command
      ->add_option("--compute-ms", options->compute_ms,
                   "Measure again with gradients that become ready over this time, last tensor "
                   "first; the rest of an exchange after that time is `exposed`")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("T");
  command->add_flag("--no-baselines{false}", options->baselines,
                    "Skip the comparison runs with `none` and with `fp16`");
  command->add_option("--timeout", options->timeout_seconds, "Maximum wait for any event, seconds")
      ->check(CLI::Range(1.0, 86400.0))
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--report", options->report_path, "Write the figures to this file, as JSON")
      ->type_name("FILE");
  app::AddOldOption(command, "--json", "--report", &options->report_path);
  command->add_option("--log-dir", options->log_folder, "Keep the processes' logs here")
      ->type_name("DIR");
}

void AddWhere(CLI::App* command, ExchangeBenchOptions* options) {
  CLI::Option* const connect =
      command
          ->add_option("--connect", options->connect,
                       "Use running servers, with shard 0 at this address and the job of "
                       "--print-job. Skips the baselines, because a job has one pair of codecs")
          ->type_name("HOST:PORT");
  command->add_flag("--print-job", options->print_job,
                    "Only print the job file, for servers on other machines");
  command
      ->add_option(
          "--link-rate", options->link_rate,
          "Rate of every process's link, for goodput and floor; bench/shaped.sh makes such links")
      ->type_name("RATE");
  command
      ->add_option("--server-hosts", options->server_hosts,
                   "Listening address of each shard, HOST or HOST:PORT [127.0.0.1, free ports]")
      ->delimiter(',')
      ->type_name("HOST,...")
      ->excludes(connect);
  command
      ->add_option("--wrap-server", options->wrap_server,
                   "Words before each server's command, {} is its shard: 'ip netns exec s{}'")
      ->type_name("WORDS")
      ->excludes(connect);
  command
      ->add_option("--wrap-worker", options->wrap_worker,
                   "Words before each worker's command, {} is its rank: 'ip netns exec w{}'")
      ->type_name("WORDS");
}

// Adds the hidden command with which RunExchangeBench starts each worker.
void AddWorker(const ExchangeBenchOptions& usual, CLI::App* bench, std::function<int()>* chosen) {
  CLI::App* const command =
      bench->add_subcommand("exchange-worker", "A worker of `sluice bench exchange`")->group("");
  auto options = std::make_shared<ExchangeWorkerOptions>();
  options->security = usual.security;
  command->add_option("--job", options->job_path, "The job file")->required();
  command->add_option("--coordinator", options->coordinator, "Address of shard 0")->required();
  command->add_option("--rank", options->rank, "From 0")->required();
  AddGradientFlags(command, &options->gradients);
  app::AddTransportFlags(command, &options->security);
  command->callback(
      [options, chosen] { *chosen = [options] { return RunExchangeWorker(*options); }; });
}

}  // namespace

void AddExchangeCommands(const ExchangeBenchOptions& usual, CLI::App* bench,
                         std::function<int()>* chosen) {
  CLI::App* const command = bench->add_subcommand(
      "exchange", "Measure how long real workers and servers take to exchange a step's gradients");
  auto options = std::make_shared<ExchangeBenchOptions>(usual);
  AddWhat(command, options.get());
  AddHow(command, options.get());
  AddWhere(command, options.get());
  app::AddTransportFlags(command, &options->security);
  command->callback(
      [options, chosen] { *chosen = [options] { return RunExchangeBench(*options); }; });
  AddWorker(usual, bench, chosen);
}

}  // namespace sluice::bench
