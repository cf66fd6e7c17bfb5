// GpuAdder: adds frames up where the sums lie. Payloads are copied to the device as they came;
// those of formats without a kernel are decoded on the processor first.
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
      : device_(device), memory_(device, false), host_(device, true), room_(device, false) {}

  // As EncodingDevice::Add.
  absl::Status Add(absl::Span<const DeviceSum> sums, void* ready);

 private:
  struct Batch;

  absl::Status Run(Batch* batch);

  Device* const device_;
  DeviceBuffer memory_, host_, room_;
};

}  // namespace sluice::compress::gpu
