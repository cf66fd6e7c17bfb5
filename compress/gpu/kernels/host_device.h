// HostDevice: what a Device is, done by the processor, block by block and at once: what encodes on
// a GPU can so be tested where there is none.
#pragma once

#include <memory>

#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

// With room for so many bytes.
std::unique_ptr<Device> MakeHostDevice(size_t bytes);

}  // namespace sluice::compress::gpu
