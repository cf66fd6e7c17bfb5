#include "worker/train/device.h"

#include <ATen/Context.h>
#include <torch/cuda.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

std::string Describe(const FoundDevices& found) {
  if (!found.cuda) return "this LibTorch has no CUDA";
  if (found.gpus == 0) return "LibTorch sees no GPU";
  return absl::StrCat("LibTorch sees ", found.gpus, found.gpus == 1 ? " GPU" : " GPUs");
}

ChosenDevice OnGpu(int gpu, const FoundDevices& found) {
  return {.gpu = gpu, .description = absl::StrCat("cuda:", gpu, " (", Describe(found), ")")};
}

}  // namespace

FoundDevices FindDevices() {
  FoundDevices found;
  found.cuda = at::hasCUDA();
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): a count.
  if (found.cuda) found.gpus = static_cast<int>(torch::cuda::device_count());
  return found;
}

absl::StatusOr<ChosenDevice> ChooseDevice(absl::string_view device, uint32_t rank,
                                          const FoundDevices& found) {
  if (device == "cpu") return ChosenDevice{.gpu = std::nullopt, .description = "cpu"};
  if (device == "auto" && found.gpus == 0) {
    return ChosenDevice{.gpu = std::nullopt,
                        .description = absl::StrCat("cpu (", Describe(found), ")")};
  }
  if ((device == "auto" || device == "cuda") && found.gpus > 0) {
    return OnGpu(static_cast<int>(rank % static_cast<uint32_t>(found.gpus)), found);
  }
  int gpu = -1;
  if (absl::ConsumePrefix(&device, "cuda:") && absl::SimpleAtoi(device, &gpu) && gpu >= 0 &&
      gpu < found.gpus) {
    return OnGpu(gpu, found);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "device is ", gpu >= 0 ? absl::StrCat("cuda:", gpu) : std::string(device), ", but ",
      Describe(found), ": set device to auto or cpu, or start the worker where there is one"));
}

}  // namespace sluice
