// SPDX-License-Identifier: Apache-2.0
// The EncodingDevice that uses a gpu::Device. Encoding any number of chunks together takes a few
// launches and two waits. The new residual of a chunk is written to separate memory, so that a
// refused encoding changes nothing. This takes additional memory for the residuals of the largest
// bundle.
#pragma once

#include <memory>

#include "compress/device_encoder.h"
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

std::unique_ptr<EncodingDevice> MakeEncodingDevice(std::unique_ptr<Device> device);

}  // namespace sluice::compress::gpu
