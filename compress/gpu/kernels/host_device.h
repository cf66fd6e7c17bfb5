// SPDX-License-Identifier: Apache-2.0
// HostDevice: a Device on the processor, which runs blocks one by one and synchronously. Tests of
// GPU encoders use it, so they need no GPU.
#pragma once

#include <memory>

#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// Makes a device with `bytes` bytes of memory.
std::unique_ptr<Device> MakeHostDevice(size_t bytes);

}  // namespace sluice::compress::gpu
