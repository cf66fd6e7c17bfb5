// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate_commands.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "bench/measure/model_tables.h"
#include "cli/simulate.h"

namespace sluice::cli {
namespace {

void AddJob(CLI::App* app, SimulateCommand* command) {
  app->add_option("job", command->job_path,
                  "Job file (default: 8 workers and 8 servers with the codecs of `sluice bench "
                  "exchange`)")
      ->type_name("JOB.yaml");
  app->add_option(
         "--set", command->sets,
         "Overrides one key of the job file, e.g. compression.uplink=fp16; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app->add_flag("--dense", command->dense,
                "Simulate the same job uncompressed, with its `baseline` section");
  CLI::Option* const model =
      app->add_option(
             "--model", command->model,
             "Model whose tensors are exchanged: " + absl::StrJoin(bench::ModelTableNames(), ", ") +
                 " (default: that of the job, or resnet50 without a job)")
          ->type_name("NAME");
  app->add_option("--table", command->table_path,
                  "Tensors from a file instead: on each line a name and its dimensions")
      ->type_name("FILE")
      ->excludes(model);
  app->add_option("--workers", command->workers, "Number of workers; replaces that of the job")
      ->check(CLI::Range(1, 100'000))
      ->type_name("N");
  app->add_option("--servers", command->servers, "Number of servers; replaces that of the job")
      ->check(CLI::Range(1, 256))
      ->type_name("K");
}

void AddTimes(CLI::App* app, SimulateCommand* command) {
  app->add_option("--compute-ms", command->compute_ms, "Forward and backward pass of one step")
      ->check(CLI::Range(0.0, 1e7))
      ->type_name("T")
      ->capture_default_str();
  app->add_option("--overlap", command->overlap,
                  "Share of the computing, at its end, during which gradients become ready")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE")
      ->capture_default_str();
  app->add_option("--steps", command->steps, "Exchanges to simulate")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--warmup", command->warmup, "First exchanges, which the figures leave out")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--straggler", command->stragglers,
                  "A worker that computes more slowly: its rank and factor, e.g. 3:2.5; may be "
                  "repeated")
      ->type_name("SLOW")
      ->allow_extra_args(false);
  app->add_option("--jitter", command->jitter,
                  "Standard deviation of the logarithm of each worker's computing time")
      ->check(CLI::Range(0.0, 3.0))
      ->type_name("SIGMA")
      ->capture_default_str();
  app->add_option("--codec-scale", command->codec_scale,
                  "Multiplies the codecs' processor times, e.g. 2 for a slower processor")
      ->check(CLI::Range(0.0, 1000.0))
      ->type_name("X")
      ->capture_default_str();
  app->add_option("--message-us", command->message_us,
                  "Processor time of a message at each end, in microseconds")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("T")
      ->capture_default_str();
}

void AddNetwork(CLI::App* app, SimulateCommand* command) {
  app->add_option("--link-rate", command->link_rate, "Rate of each machine's link, each way")
      ->type_name("RATE")
      ->capture_default_str();
  app->add_option("--up-rate", command->up_rate, "A lower rate at which workers send")
      ->type_name("RATE");
  app->add_option("--burst", command->burst, "Bytes that an idle link passes at once, e.g. 256KiB")
      ->type_name("BYTES");
  app->add_option("--latency", command->latency, "One way, between two machines, e.g. 100us")
      ->type_name("TIME");
  app->add_option("--unevenness", command->unevenness,
                  "Standard deviation of the logarithm of a connection's share of a busy link")
      ->check(CLI::Range(0.0, 3.0))
      ->type_name("SIGMA")
      ->capture_default_str();
  app->add_option("--loss", command->loss, "Share of the packets that a machine's link loses")
      ->check(CLI::Range(0.0, 0.99))
      ->type_name("SHARE")
      ->capture_default_str();
  app->add_flag("--colocated", command->colocated,
                "Each server shares a worker's machine and its link");
  app->add_option("--racks", command->racks,
                  "Racks or sites, to which workers and servers belong in turns")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--rack-rate", command->rack_rate,
                  "Rate of each rack's link to the other racks (default: no limit)")
      ->type_name("RATE");
  app->add_option("--rack-latency", command->rack_latency,
                  "One way between two racks, in addition to --latency")
      ->type_name("TIME");
  app->add_option("--rack-loss", command->rack_loss,
                  "Share of the packets that a rack's link loses")
      ->check(CLI::Range(0.0, 0.99))
      ->type_name("SHARE")
      ->capture_default_str();
}

void AddFailures(CLI::App* app, SimulateCommand* command) {
  CLI::Option* const trace =
      app->add_option("--failures", command->failures_path,
                      "Trace of failures: lines of `TIME WORKER down|up`, in seconds")
          ->type_name("FILE");
  app->add_option("--mtbf", command->mtbf, "Mean time between the failures of a worker, e.g. 100h")
      ->type_name("TIME")
      ->excludes(trace);
  app->add_option("--repair", command->repair, "Mean time until a failed worker is back")
      ->type_name("TIME")
      ->capture_default_str();
  app->add_flag("--goodput", command->goodput,
                "Compare plain data parallel, elastic, and streaming local steps with a quorum "
                "under these failures, by a lighter model for up to 100,000 workers");
  app->add_option("--duration", command->duration, "With --goodput: the time to simulate")
      ->type_name("TIME")
      ->capture_default_str();
  app->add_option("--restart", command->restart,
                  "With --goodput: until plain data parallel runs again after a failure")
      ->type_name("TIME")
      ->capture_default_str();
  app->add_option("--checkpoint-every", command->checkpoint_every,
                  "With --goodput: the time between checkpoints of plain data parallel")
      ->type_name("TIME")
      ->capture_default_str();
}

}  // namespace

void AddSimulateCommand(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* const simulate = app->add_subcommand(
      "simulate", "Simulate a job on more machines, and on other links, than you have");
  simulate->footer("The same flags give the same output (docs/simulate.md).");
  auto command = std::make_shared<SimulateCommand>();
  AddJob(simulate, command.get());
  AddTimes(simulate, command.get());
  AddNetwork(simulate, command.get());
  AddFailures(simulate, command.get());
  simulate->add_option("--seed", command->seed, "Seed of jitter, failures and shares of links")
      ->type_name("N")
      ->capture_default_str();
  simulate->add_option("--report", command->report_path, "Write the figures to this file, as JSON")
      ->type_name("FILE");
  simulate->add_option("--plot", command->plot_folder, "Write charts to this folder, as SVG")
      ->type_name("DIR");
  simulate->callback([command, chosen] {
    *chosen = [command] { return SimulateJob(*command, std::cout, std::cerr); };
  });
}

}  // namespace sluice::cli
