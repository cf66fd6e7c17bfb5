// SPDX-License-Identifier: Apache-2.0
#include "cli/estimate_flags.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "bench/measure/model_tables.h"
#include "cli/estimate.h"

namespace sluice::cli {
namespace {

constexpr int kFailed = 1;

void AddModel(CLI::App* app, EstimateCommand* command) {
  app->add_option("job", command->job_path, "Job file (YAML)")->type_name("JOB.yaml");
  app->add_option("--set", command->sets, "Overrides one key of the job file; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  CLI::Option* const model =
      app->add_option("--model", command->model,
                      "Model: " + absl::StrJoin(bench::ModelTableNames(), ", "))
          ->type_name("NAME");
  CLI::Option* const table =
      app->add_option("--table", command->table_path, "Tensors from a file, as in `bench exchange`")
          ->type_name("FILE")
          ->excludes(model);
  app->add_option("--parameters", command->parameters, "Number of parameters, instead of a model")
      ->type_name("N")
      ->excludes(model)
      ->excludes(table);
}

void AddMachines(CLI::App* app, EstimateCommand* command) {
  app->add_option("--workers", command->workers, "Number of workers")->type_name("N");
  app->add_option("--shards", command->shards, "Number of shards [one for each worker]")
      ->type_name("N");
  app->add_option("--placement", command->placement,
                  "Machines of shards: " + absl::StrJoin(AllNames<planning::Placement>(), ", "))
      ->type_name("NAME");
  app->add_option("--threads", command->threads,
                  "Threads of each worker and shard, as in `sluice-server --threads`")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--sites", command->sites, "Sites, each with one link for all of its workers")
      ->type_name("N");
  app->add_flag("--relays", command->relays, "Each site has a relay");
  app->add_option("--site-rate", command->site_rate, "Rate of each machine's link within a site")
      ->type_name("RATE")
      ->capture_default_str();
  app->add_option("--link-rate", command->link_rate, "Rate of each link")
      ->type_name("RATE")
      ->capture_default_str();
  app->add_option("--up-rate", command->up_rate, "Rate at which workers or sites send")
      ->type_name("RATE");
  app->add_option("--latency", command->latency, "One-way latency, e.g. 20ms")
      ->type_name("TIME")
      ->capture_default_str();
  app->add_option("--burst", command->burst, "Bytes that an idle link passes at once, e.g. 256KiB")
      ->type_name("BYTES");
}

void AddStep(CLI::App* app, EstimateCommand* command) {
  app->add_option("--compute-ms", command->compute_ms, "Computing in each step")->type_name("T");
  app->add_option("--overlap", command->overlap,
                  "Share of computing in which gradients become ready [0.7]")
      ->type_name("SHARE");
  app->add_option("--spec", command->spec, "Codec up, and down without --down-spec")
      ->type_name("SPEC");
  app->add_option("--down-spec", command->down_spec, "Codec down")->type_name("SPEC");
  app->add_flag("--no-local-steps{false}", command->local_steps, "Do not recommend local steps");
  app->add_option("--egress-price", command->egress_price, "Price of each GB that leaves a machine")
      ->type_name("PRICE");
  app->add_flag("--json", command->json, "Show the figures as JSON");
}

int Calibrate(CalibrationOptions options, const EstimateCommand& command, const std::string& path) {
  if (!command.model.empty()) options.model = command.model;
  options.table_path = command.table_path;
  if (!command.spec.empty()) options.specs.push_back(command.spec);
  if (!command.down_spec.empty()) options.specs.push_back(command.down_spec);
  options.progress = [](const std::string& what) { std::cerr << "measured " << what << "\n"; };
  const absl::StatusOr<planning::MachineFigures> figures = CalibrateMachine(options);
  if (!figures.ok()) {
    std::cerr << "error: --calibrate: " << std::string(figures.status().message()) << "\n";
    return kFailed;
  }
  std::ofstream file(path);
  file << planning::MachineFiguresJson(*figures);
  if (file.flush()) return 0;
  std::cerr << "error: --calibrate: cannot write " << path << ": check that its folder exists\n";
  return kFailed;
}

}  // namespace

void AddEstimate(const CalibrationOptions& calibration, CLI::App* app,
                 std::function<int()>* chosen) {
  CLI::App* const estimate = app->add_subcommand(
      "estimate", "Estimate step time, bytes, cost and sizes of a job, and recommend settings");
  auto command = std::make_shared<EstimateCommand>();
  auto calibrate = std::make_shared<std::string>();
  AddModel(estimate, command.get());
  AddMachines(estimate, command.get());
  AddStep(estimate, command.get());
  CLI::Option* const figures =
      estimate
          ->add_option("--figures", command->figures_path, "Figures of a machine from --calibrate")
          ->type_name("FILE");
  estimate
      ->add_option(
          "--calibrate", *calibrate,
          "Only measure this machine, with the model's tensors, and write its figures to this "
          "file; half a minute")
      ->type_name("FILE")
      ->excludes(figures);
  estimate->callback([calibration, command, calibrate, chosen] {
    *chosen = [calibration, command, calibrate] {
      if (!calibrate->empty()) return Calibrate(calibration, *command, *calibrate);
      return RunEstimate(*command, std::cout, std::cerr);
    };
  });
}

}  // namespace sluice::cli
