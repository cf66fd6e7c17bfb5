// The EncodingDevice that is a gpu::Device. All chunks that are encoded at once take a few
// launches, whatever their number, and two waits: none for a tensor. What one encoding leaves of a
// chunk goes to other memory than the residual that it was made from, so that one that is refused
// has changed nothing; that takes room for the residuals of the largest bundle once more.
#pragma once

#include <memory>

#include "compress/device_encoder.h"
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

std::unique_ptr<EncodingDevice> MakeEncodingDevice(std::unique_ptr<Device> device);

}  // namespace sluice::compress::gpu
