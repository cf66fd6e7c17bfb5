// SPDX-License-Identifier: Apache-2.0
// sluice: runs a job on this machine, checks a job file, and shows the status of a running job.
// This file only defines the flags.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "app/old_flags.h"
#include "app/transport_flags.h"
#include "base/descriptors.h"
#include "bench/measure/codec_report.h"
#include "bench/measure/exchange_flags.h"
#include "bench/measure/model_tables.h"
#include "cli/checkpoint.h"
#include "cli/codecs.h"
#include "cli/debug_bundle.h"
#include "cli/doctor/doctor.h"
#include "cli/estimate_flags.h"
#include "cli/explain.h"
#include "cli/follow_commands.h"
#include "cli/job_schema.h"
#include "cli/patch_commands.h"
#include "cli/presets.h"
#include "cli/run.h"
#include "cli/running_job_commands.h"
#include "cli/simulate_commands.h"
#include "cli/validate.h"
#include "job/support.h"

namespace sluice::cli {
namespace {

constexpr int kUsageError = 2;

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ConsoleOptions ConsoleOfThisProcess() {
  ConsoleOptions console;
  console.out = stdout;
  console.err = stderr;
  console.terminal = ::isatty(STDOUT_FILENO) == 1 && FromEnvironment("TERM") != "dumb";
  console.colors =
      console.terminal && ::isatty(STDERR_FILENO) == 1 && FromEnvironment("NO_COLOR").empty();
  return console;
}

RunOptions RunOptionsOfThisProcess() {
  RunOptions options;
  options.console = ConsoleOfThisProcess();
  std::error_code error;
  options.program_folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  options.temporary_folder = FromEnvironment("TMPDIR");
  if (options.temporary_folder.empty()) options.temporary_folder = "/tmp";
  for (char** entry = environ; *entry != nullptr; ++entry) options.environment.push_back(*entry);
  return options;
}

// Adds the flags that select the job, for `run` and `validate`.
// Returns the option for the job file.
CLI::Option* AddJobFlags(CLI::App* command, std::string* path, std::vector<std::string>* sets,
                         bool* dense) {
  CLI::Option* const job =
      command->add_option("job", *path, "Job file (YAML)")->type_name("JOB.yaml");
  command
      ->add_option("--set", *sets,
                   "Overrides one key of the job file, e.g. optimizer.lr=0.3; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--dense", *dense,
                    "Run the same job uncompressed, with its `baseline` section");
  return job;
}

void AddRun(CLI::App* app, RunOptions* options, std::function<int()>* chosen) {
  CLI::App* run = app->add_subcommand("run", "Run a job's shards and workers on this machine");
  CLI::Option* const job = AddJobFlags(run, &options->job_path, &options->sets, &options->dense);
  job->description("Job file (YAML); not needed with a command after --");
  run->footer(
      "`sluice run [OPTIONS] [JOB.yaml] -- COMMAND...` runs COMMAND, such as `python train.py`, in "
      "place of each worker. It finds its rank and the servers in its environment "
      "(docs/python.md). "
      "Without a job file, both codecs are int8.");
  run->add_option("--workers", options->workers, "Number of workers; replaces that of the job file")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  run->add_option("--link-rate", options->link_rate,
                  "Give every process a link of this rate, e.g. 100mbit")
      ->type_name("RATE");
  run->add_option("--report", options->report_path, "Write the report to this file, as JSON")
      ->type_name("FILE");
  run->add_option("--threads", options->threads,
                  "Threads of each worker; the bits of the result depend on them (default: the "
                  "cores that this command may use, divided by the workers)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  run->add_option("--http-listen", options->http_listen,
                  "Address of shard 0's page and metrics; `off` disables them (default: "
                  "server.http_port, or a free port if that is taken)")
      ->type_name("HOST:PORT");
  run->add_option("--http-port-base", options->http_port_base,
                  "Serve metrics of all other processes too, on 127.0.0.1: shard I on port N + I, "
                  "worker R on port N + shards + R (default: none)")
      ->check(CLI::Range(1, 65535))
      ->type_name("N");
  run->add_option("--trace-dir", options->trace_folder,
                  "Write a trace of each process here, for ui.perfetto.dev (docs/traces.md)")
      ->type_name("DIR");
  run->add_option("--log-dir", options->log_folder,
                  "Keep the processes' logs here (default: a temporary folder, kept on failure)")
      ->type_name("DIR");
  run->add_option("--token-file", options->token_file,
                  "File with the token of the run's processes (default: a new token, in the file "
                  "`token` of the log folder until the run ends)")
      ->type_name("FILE");
  run->add_flag("--resume", options->resume,
                "Continue the unfinished run in checkpoint.dir from its newest checkpoint");
  run->add_flag("--quiet", options->quiet, "Print only the report, without progress and warnings");
  app::AddOldOption(run, "--json", "--report", &options->report_path);
  app::AddOldOption(run, "--http", "--http-listen", &options->http_listen);
  app::AddOldOption(run, "--metrics-port", "--http-port-base", &options->http_port_base);
  run->callback([options, job, chosen] {
    if (options->job_path.empty() && options->command.empty()) {
      throw CLI::RequiredError(job->get_name());
    }
    *chosen = [options] { return RunJob(*options); };
  });
}

void AddDoctor(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* doctor =
      app->add_subcommand("doctor", "Check the network between two machines before the first run");
  doctor->footer(
      "Run it on one machine with --listen, and then on the other one with --connect. Both print "
      "all results and exit with 1 if a check failed. Without --token-file or TLS, the first "
      "machine that connects is the other one.");
  auto options = std::make_shared<DoctorOptions>();
  auto wait = std::make_shared<int64_t>(absl::ToInt64Seconds(options->wait));
  options->console = ConsoleOfThisProcess();
  options->version = SLUICE_VERSION;
  CLI::Option* const listen =
      doctor
          ->add_option("--listen", options->listen,
                       "Wait here for the other machine. With --connect: where the other one calls "
                       "back (default: the port of --connect, at the address that it sees)")
          ->type_name("HOST:PORT");
  CLI::Option* const connect =
      doctor->add_option("--connect", options->connect, "Address at which the other one listens")
          ->type_name("HOST:PORT");
  doctor->add_option("--wait", *wait, "With --listen alone: seconds until the other one connects")
      ->check(CLI::Range(1, 86400))
      ->type_name("S")
      ->capture_default_str();
  doctor
      ->add_option("--parameters", options->parameters,
                   "Parameters of the model for which the times of a step are shown")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  options->security.grpc_proxy = FromEnvironment("grpc_proxy");
  app::AddTransportFlags(doctor, &options->security);
  doctor->callback([=] {
    if (listen->empty() && connect->empty()) throw CLI::RequiredError("--listen or --connect");
    options->wait = absl::Seconds(*wait);
    options->descriptors = DescriptorLimit();
    *chosen = [options] { return ExamineNetwork(*options); };
  });
}

void AddValidate(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* validate = app->add_subcommand("validate", "Check a job file");
  struct Flags {
    std::string path;
    std::vector<std::string> sets;
    bool dense = false;
    std::vector<std::string> expected;
  };
  auto flags = std::make_shared<Flags>();
  AddJobFlags(validate, &flags->path, &flags->sets, &flags->dense)->required();
  validate
      ->add_option("--expect", flags->expected,
                   "Refuse the job unless it already contains this, e.g. workers=4, for launchers "
                   "that rely on it; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  validate->callback([flags, chosen] {
    *chosen = [flags] {
      return ValidateJob({flags->path, flags->sets, flags->dense}, flags->expected);
    };
  });
}

void AddCodecs(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* codecs = app->add_subcommand("codecs", "List the codecs");
  auto support = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  codecs->add_flag("--support", *support,
                   "Show which combinations work instead, as in docs/compression.md");
  codecs->add_flag("--json", *json, "Show the list as JSON");
  codecs->callback([chosen, support, json] {
    *chosen = [support, json] {
      const std::string text = *support ? job::SupportTableMarkdown()
                               : *json  ? CodecTableJson()
                                        : FormatCodecTable();
      return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
    };
  });
}

void AddPresets(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* presets = app->add_subcommand(
      "presets", "List the presets for a job's key `preset`, or print the keys of one");
  auto name = std::make_shared<std::string>();
  presets->add_option("name", *name, "Preset")->type_name("NAME");
  presets->callback([chosen, name] {
    *chosen = [name] {
      const absl::StatusOr<std::string> text =
          name->empty() ? FormatPresets() : FormatPreset(*name);
      if (!text.ok()) {
        Console(ConsoleOfThisProcess()).Error(text.status().message());
        return kUsageError;
      }
      return std::fputs(text->c_str(), stdout) < 0 ? 1 : 0;
    };
  });
}

void AddExplain(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* explain = app->add_subcommand(
      "explain", "Explain a key of the job file, or list the keys of a section");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  auto schema = std::make_shared<bool>(false);
  CLI::Option* const key =
      explain->add_option("key", *path, "For example, optimizer.lr (default: the keys of the job)")
          ->type_name("KEY");
  explain->add_flag("--json", *json, "Show the section and all sections in it as JSON");
  explain
      ->add_flag("--schema", *schema,
                 "Show a JSON Schema (draft 2020-12) of job files, for editors and other checkers")
      ->excludes(key, "--json");
  explain->callback([chosen, path, json, schema] {
    *chosen = [path, json, schema] {
      const absl::StatusOr<std::string> text = *schema ? JobSchemaJson()
                                               : *json ? KeysJson(*path)
                                                       : FormatKey(*path);
      if (!text.ok()) {
        Console(ConsoleOfThisProcess()).Error(text.status().message());
        return kUsageError;
      }
      return std::fputs(text->c_str(), stdout) < 0 ? 1 : 0;
    };
  });
}

int BenchCodecs(bench::CodecReportOptions options, const std::string& report_path) {
  Console console(ConsoleOfThisProcess());
  options.done = [&console](const std::string& spec) { console.DrawBlock({"measured " + spec}); };
  const absl::StatusOr<bench::CodecReport> report = bench::MeasureCodecs(options);
  console.ClearBlock();
  if (!report.ok()) {
    console.Error(report.status().message());
    return kUsageError;
  }
  if (std::fputs(bench::FormatCodecReport(*report).c_str(), stdout) < 0) return 1;
  if (report_path.empty()) return 0;
  std::ofstream file(report_path);
  file << bench::CodecReportJson(*report);
  if (file.flush()) return 0;
  console.Error("cannot write " + report_path);
  return 1;
}

bench::ExchangeBenchOptions ExchangeOptionsOfThisProcess() {
  const RunOptions process = RunOptionsOfThisProcess();
  bench::ExchangeBenchOptions options;
  options.program = process.program_folder + "/sluice";
  options.program_folder = process.program_folder;
  options.temporary_folder = process.temporary_folder;
  options.environment = process.environment;
  options.console = process.console;
  options.security.grpc_proxy = FromEnvironment("grpc_proxy");
  return options;
}

void AddBench(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* bench = app->add_subcommand("bench", "Measure on this machine, without a job");
  bench->require_subcommand(1);
  CLI::App* codecs = bench->add_subcommand(
      "codecs", "Bytes, errors and times of codecs on synthetic gradients of a model");
  auto options = std::make_shared<bench::CodecReportOptions>();
  auto report = std::make_shared<std::string>();
  codecs
      ->add_option(
          "--model", options->model,
          "Model whose tensors are measured: " + absl::StrJoin(bench::ModelTableNames(), ", "))
      ->type_name("NAME")
      ->capture_default_str();
  codecs
      ->add_option("--table", options->table_path,
                   "Tensors from a file instead: on each line a name and its dimensions, e.g. "
                   "fc1.weight 256 784")
      ->type_name("FILE")
      ->excludes("--model");
  codecs
      ->add_option("--spec", options->specs,
                   "A codec, e.g. topk:1%+int4; may be repeated (default: one or more of each)")
      ->type_name("SPEC")
      ->allow_extra_args(false);
  codecs
      ->add_option("--elements", options->elements,
                   "Reduce all tensors to about this many elements in total: faster, but small "
                   "tensors count for more")
      ->type_name("N");
  codecs
      ->add_option("--settle", options->settle,
                   "Maximum number of steps before the measured ones, until feedback is steady")
      ->check(CLI::Range(0, 100000))
      ->type_name("K")
      ->capture_default_str();
  codecs->add_option("--steps", options->steps, "Steps to measure")
      ->check(CLI::Range(1, 100000))
      ->type_name("K")
      ->capture_default_str();
  codecs
      ->add_option("--seed", options->seed,
                   "Seed of gradients and codecs: equal seeds give equal bytes")
      ->type_name("N")
      ->capture_default_str();
  codecs->add_option("--report", *report, "Write the figures to this file, as JSON")
      ->type_name("FILE");
  app::AddOldOption(codecs, "--json", "--report", report.get());
  codecs->callback([options, report, chosen] {
    *chosen = [options, report] { return BenchCodecs(*options, *report); };
  });
  bench::AddExchangeCommands(ExchangeOptionsOfThisProcess(), bench, chosen);
}

void AddCheckpoint(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* checkpoint =
      app->add_subcommand("checkpoint", "Show or verify a folder of checkpoints");
  checkpoint->require_subcommand(1);
  using Command = int (*)(const CheckpointCommand&, std::ostream&, std::ostream&);
  const auto add = [&](const char* name, const char* what, Command command) {
    CLI::App* sub = checkpoint->add_subcommand(name, what);
    auto flags = std::make_shared<CheckpointCommand>();
    sub->add_option("dir", flags->dir, "The job's checkpoint.dir")->required()->type_name("DIR");
    sub->add_option("--step", flags->step, "Only the checkpoint after this step")->type_name("N");
    sub->callback([flags, command, chosen] {
      *chosen = [flags, command] { return command(*flags, std::cout, std::cerr); };
    });
  };
  add("inspect", "List its contents; with --step, part by part", &InspectCheckpoints);
  add("verify", "Read everything and say whether a run could continue from it", &VerifyCheckpoints);
}

// Moves the words after `--` of `sluice run ... -- COMMAND...` into the options. Returns the number
// of words before `--`.
int TakeCommand(int argc, char** argv, RunOptions* options) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
  char** const end = argv + argc;
  char** const dashes =
      std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  if (dashes != end) options->command.assign(dashes + 1, end);
  return static_cast<int>(dashes - argv);
}

int Main(int argc, char** argv) {
  CLI::App app("Sluice: a sharded parameter server that compresses gradients", "sluice");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success; 1 the run failed; 2 a flag or the job file is wrong; 128 + a signal "
      "that stopped it.\n`sluice COMMAND --help` shows a command's flags.");
  RunOptions run_options = RunOptionsOfThisProcess();
  std::function<int()> chosen;
  AddRun(&app, &run_options, &chosen);
  AddValidate(&app, &chosen);
  AddExplain(&app, &chosen);
  AddRunningJobCommands({.console = ConsoleOfThisProcess(),
                         .grpc_proxy = FromEnvironment("grpc_proxy"),
                         .bundle = {.version = SLUICE_VERSION,
                                    .temporary_folder = run_options.temporary_folder,
                                    .environment = run_options.environment}},
                        &app, &chosen);
  AddDoctor(&app, &chosen);
  AddCheckpoint(&app, &chosen);
  AddPatchCommands(&app, &chosen);
  AddFollowCommand(&app, FromEnvironment("grpc_proxy"), &chosen);
  AddSimulateCommand(&app, &chosen);
  AddCodecs(&app, &chosen);
  AddPresets(&app, &chosen);
  AddBench(&app, &chosen);
  AddEstimate({.program = run_options.program_folder + "/sluice",
               .temporary_folder = run_options.temporary_folder,
               .environment = run_options.environment,
               .model = "resnet50",
               .specs = {},
               .progress = {}},
              &app, &chosen);
  try {
    app.parse(TakeCommand(argc, argv, &run_options), argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return chosen();
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) {
  sluice::RaiseDescriptorLimit();
  return sluice::cli::Main(argc, argv);
}
