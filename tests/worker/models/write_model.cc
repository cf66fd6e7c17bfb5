// SPDX-License-Identifier: Apache-2.0
// Writes a model's parameters.pt with the values of filled.h and prints the first eight scores for
// two samples. load_parameters_test.py compares them. usage: write_model MODEL FOLDER
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "tests/worker/models/filled.h"
#include "worker/models/make_model.h"
#include "worker/train/parameters_file.h"

namespace sluice::worker {
namespace {

SampleShape ShapeFor(const std::string& model) {
  if (model == "mlp") return {.channels = 3, .height = 4, .width = 5, .classes = 7};
  if (model == "simple_cnn") return {.channels = 1, .height = 28, .width = 28, .classes = 10};
  if (model == "resnet20") return {.channels = 3, .height = 32, .width = 32, .classes = 10};
  if (model == "char_gpt") return {.context = 12, .classes = 11};
  return {.channels = 3, .height = 64, .width = 64, .classes = 1000};
}

at::Tensor Inputs(const SampleShape& shape) {
  if (shape.is_tokens()) return FilledNumbers(kInputStream, shape.classes, {2, 9});
  return FilledTensor(kInputStream, {2, shape.channels, shape.height, shape.width}).to(at::kFloat);
}

int Write(const std::string& name, const std::string& folder) {
  at::set_num_threads(1);
  job::ModelSpec spec;
  spec.name = name;
  if (name == "mlp") spec.hidden = {20, 30};
  const SampleShape shape = ShapeFor(name);
  const auto model = MakeModel(spec, shape);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
    return 1;
  }
  FillParameters(**model);
  (*model)->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor scores = (*model)->forward(Inputs(shape)).flatten();
  for (int64_t i = 0; i < 8; ++i) std::printf("%.9g\n", scores[i].item<double>());
  const absl::Status status =
      SaveParameters(FormatParameters(**model), std::string(folder) + "/parameters.pt");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace sluice::worker

int main(int argc, char** argv) { return argc == 3 ? sluice::worker::Write(argv[1], argv[2]) : 2; }
