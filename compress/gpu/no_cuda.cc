// SPDX-License-Identifier: Apache-2.0
// Replaces the CUDA device in builds without SLUICE_CUDA.
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

std::unique_ptr<Device> MakeCudaDevice(int, std::string* problem) {
  *problem = "this Sluice is built without CUDA (SLUICE_CUDA)";
  return nullptr;
}

}  // namespace sluice::compress::gpu
