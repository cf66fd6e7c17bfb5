// SPDX-License-Identifier: Apache-2.0
// GpuAdder: adds frames to sums on the device. Payloads are copied to the device unchanged, except
// that the processor first decodes payloads of formats without a kernel.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/device_encoder.h"
#include "compress/gpu/device_buffer.h"
#include "compress/gpu/kernels/device.h"

namespace sluice::compress::gpu {

class GpuAdder {
 public:
  explicit GpuAdder(Device* device)
      : device_(device), memory_(device, false), host_(device, true), scratch_(device, false) {}

  // Implements EncodingDevice::Add.
  absl::Status Add(absl::Span<const DeviceSum> sums, void* ready);

 private:
  struct Batch;

  absl::Status Run(Batch* batch);

  Device* const device_;
  DeviceBuffer memory_, host_, scratch_;
};

}  // namespace sluice::compress::gpu
