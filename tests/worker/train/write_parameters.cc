// SPDX-License-Identifier: Apache-2.0
// Writes parameters.pt and parameters.safetensors with recognizable values for load_in_pytorch.py:
// element j of tensor k is k + j / 1024. usage: write_parameters FOLDER
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "worker/models/make_model.h"
#include "worker/train/parameters_file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  sluice::job::ModelSpec spec;
  spec.name = "simple_cnn";
  const auto model =
      sluice::worker::MakeModel(spec, {.channels = 1, .height = 28, .width = 28, .classes = 10});
  if (!model.ok()) return 1;
  {
    const torch::NoGradGuard no_grad;
    float k = 0;
    for (at::Tensor tensor : (*model)->parameters()) {
      tensor.copy_(
          (torch::arange(tensor.numel(), torch::kFloat) / 1024 + k).reshape(tensor.sizes()));
      ++k;
    }
  }
  const std::string folder = argv[1];
  absl::Status status = sluice::worker::SaveParameters(sluice::worker::FormatParameters(**model),
                                                       folder + "/parameters.pt");
  const absl::StatusOr<std::string> safetensors =
      sluice::worker::FormatSafetensors(sluice::worker::TensorsOf(**model));
  status.Update(safetensors.status());
  if (status.ok()) {
    status = sluice::worker::SaveParameters(*safetensors, folder + "/parameters.safetensors");
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
