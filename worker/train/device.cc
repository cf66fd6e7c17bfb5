#include "worker/train/device.h"

#include <ATen/Context.h>
#include <torch/cuda.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

std::string Describe(const FoundDevices& found) {
  if (!found.cuda) return "this LibTorch has no CUDA";
  if (found.gpus == 0) return "LibTorch sees no GPU";
  return absl::StrCat("LibTorch sees ", found.gpus, found.gpus == 1 ? " GPU" : " GPUs",
                      ", which this version does not compute on yet");
}

}  // namespace

FoundDevices FindDevices() {
  FoundDevices found;
  found.cuda = at::hasCUDA();
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): a count.
  if (found.cuda) found.gpus = static_cast<int>(torch::cuda::device_count());
  return found;
}

absl::StatusOr<std::string> ChooseDevice(absl::string_view device, const FoundDevices& found) {
  if (device == "cpu") return "cpu";
  if (device == "auto") return absl::StrCat("cpu (", Describe(found), ")");
  return absl::UnimplementedError(absl::StrCat("device is ", device,
                                               ", but this version computes on the CPU only (",
                                               Describe(found), "): set device to auto or cpu"));
}

}  // namespace sluice
