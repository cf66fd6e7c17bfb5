// SPDX-License-Identifier: Apache-2.0
#include "cli/patch_commands.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "cli/patch.h"

namespace sluice::cli {
namespace {

// Adds a subcommand with options of type `Command`, which `run` executes.
template <typename Command>
struct Added {
  CLI::App* app;
  std::shared_ptr<Command> options;
};
template <typename Command>
Added<Command> AddOne(CLI::App* patch, const char* name, const char* what,
                      int (*run)(const Command&, std::ostream&, std::ostream&),
                      std::function<int()>* chosen) {
  CLI::App* const app = patch->add_subcommand(name, what);
  auto options = std::make_shared<Command>();
  app->callback([options, run, chosen] {
    *chosen = [options, run] { return run(*options, std::cout, std::cerr); };
  });
  return {app, options};
}

void AddOutput(CLI::App* app, std::string* output, const char* what) {
  app->add_option("-o,--output", *output, what)->required()->type_name("FILE");
}

void AddMake(CLI::App* patch, std::function<int()>* chosen) {
  const auto [app, options] =
      AddOne(patch, "make", "Write the patch from one model to the next", &MakePatch, chosen);
  app->add_option("old", options->before, "Model (safetensors, all BF16, all F16 or all F32)")
      ->required()
      ->type_name("OLD");
  app->add_option("new", options->after, "Model with the same tensors and new weights")
      ->required()
      ->type_name("NEW");
  AddOutput(app, &options->output, "The patch, e.g. 7.sluicepatch");
  app->add_option("--model-version", options->version, "Version of NEW")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--base-version", options->base_version,
                  "Version of OLD (default: one less than that of NEW)")
      ->type_name("N");
}

void AddAnchor(CLI::App* patch, std::function<int()>* chosen) {
  const auto [app, options] =
      AddOne(patch, "anchor", "Write complete weights, with which a chain of patches can begin",
             &MakeAnchor, chosen);
  app->add_option("model", options->model, "Model (safetensors, all BF16, all F16 or all F32)")
      ->required()
      ->type_name("MODEL");
  AddOutput(app, &options->output, "The anchor, e.g. 7.sluicepatch");
  app->add_option("--model-version", options->version, "Version of the model")
      ->type_name("N")
      ->capture_default_str();
}

void AddApply(CLI::App* patch, std::function<int()>* chosen) {
  const auto [app, options] = AddOne(
      patch, "apply", "Apply patches to a model and write the result", &ApplyPatches, chosen);
  app->add_option("files", options->files,
                  "A model (safetensors) or an anchor, and then patches in order")
      ->required()
      ->type_name("FILE");
  AddOutput(app, &options->output,
            "The new model; replaces an existing file only when it is complete");
}

void AddVerify(CLI::App* patch, std::function<int()>* chosen) {
  const auto [app, options] =
      AddOne(patch, "verify", "Check patches, and that each continues the one before it",
             &VerifyPatches, chosen);
  app->add_option("patches", options->patches, "Patches in order")->required()->type_name("PATCH");
  app->add_option("--base", options->model, "Apply them to this model in memory")
      ->type_name("FILE");
}

void AddInfo(CLI::App* patch, std::function<int()>* chosen) {
  const auto [app, options] = AddOne(patch, "info", "Show versions, amounts and digests of patches",
                                     &DescribePatches, chosen);
  app->add_option("patches", options->patches, "Patches")->required()->type_name("PATCH");
  app->add_flag("--json", options->json, "Show them as JSON");
}

}  // namespace

void AddPatchCommands(CLI::App* app, std::function<int()>* chosen) {
  CLI::App* const patch = app->add_subcommand(
      "patch", "Write, check and apply lossless patches between versions of a model's weights");
  patch->require_subcommand(1);
  AddMake(patch, chosen);
  AddAnchor(patch, chosen);
  AddApply(patch, chosen);
  AddVerify(patch, chosen);
  AddInfo(patch, chosen);
}

}  // namespace sluice::cli
