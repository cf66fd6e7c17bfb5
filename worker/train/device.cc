// SPDX-License-Identifier: Apache-2.0
#include "worker/train/device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/cuda.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "job/job_spec.h"

namespace sluice::worker {
namespace {

std::string Describe(const FoundDevices& found) {
  if (!found.cuda) return "this LibTorch has no CUDA";
  if (found.gpus == 0) return "LibTorch sees no GPU";
  return absl::StrCat("LibTorch sees ", found.gpus, found.gpus == 1 ? " GPU" : " GPUs");
}

ChosenDevice OnGpus(int first, int count, const FoundDevices& found) {
  ChosenDevice chosen;
  for (int i = 0; i < count; ++i) chosen.gpus.push_back(first + i);
  const std::string all = absl::StrJoin(
      chosen.gpus, ", ", [](std::string* text, int gpu) { absl::StrAppend(text, "cuda:", gpu); });
  chosen.description = absl::StrCat(all, " (", Describe(found), ")");
  return chosen;
}

}  // namespace

FoundDevices FindDevices() {
  FoundDevices found;
  // at::hasCUDA also returns false if there is no GPU.
  found.cuda = at::detail::getCUDAHooks().isBuilt();
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): a count.
  if (found.cuda) found.gpus = static_cast<int>(torch::cuda::device_count());
  return found;
}

absl::StatusOr<ChosenDevice> ChooseDevice(const job::JobSpec& spec, uint32_t rank,
                                          const FoundDevices& found) {
  absl::string_view device = spec.training.device;
  if (device == "cpu") return ChosenDevice{.gpus = {}, .description = "cpu"};
  if (device == "auto" && found.gpus == 0) {
    return ChosenDevice{.gpus = {}, .description = absl::StrCat("cpu (", Describe(found), ")")};
  }
  const auto count = static_cast<int>(spec.training.gpus_per_worker);
  if ((device == "auto" || device == "cuda") && found.gpus >= count) {
    const auto groups = static_cast<uint32_t>(found.gpus / count);
    return OnGpus(static_cast<int>(rank % groups) * count, count, found);
  }
  int first = -1;
  if (absl::ConsumePrefix(&device, "cuda:") && absl::SimpleAtoi(device, &first) && first >= 0 &&
      first + count <= found.gpus) {
    return OnGpus(first, count, found);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "device is ", spec.training.device,
      count > 1 ? absl::StrCat(" with ", count, " GPUs per worker (gpus_per_worker)") : "",
      ", but ", Describe(found), ": set ",
      count > 1 ? "gpus_per_worker to the available number, or " : "", "device to ",
      spec.training.device == "auto" ? "cpu" : "auto or cpu",
      ", or start the worker on a machine that has them"));
}

}  // namespace sluice::worker
