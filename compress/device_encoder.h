// SPDX-License-Identifier: Apache-2.0
// Interfaces for encoding on the device that holds the gradients. A device produces the same bytes
// and residuals as the codecs on the processor. compress/gpu implements these interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"
#include "compress/element_type.h"

namespace sluice::compress {

// A chunk's gradient on a device.
struct DeviceGradient {
  // Address on the device, or null if the gradient is not on a device.
  const void* data = nullptr;
  ElementType type = ElementType::kFloat32;
  float scale = 1;  // Factor that multiplies each element.
  // Event of the device's runtime that signals that the gradient is complete. Null if the gradient
  // is already complete.
  void* ready = nullptr;
};

// A gradient that is copied to the host.
struct DeviceRead {
  DeviceGradient gradient{};
  size_t bytes = 0;
};

// A chunk's sum on a device, and the frames that are added to it.
struct DeviceSum {
  float* sum = nullptr;
  size_t count = 0;
  // If true, the sum starts from zero and ignores its previous contents.
  bool from_zero = false;
  // Frames that AddValidFrames accepts. The span may be empty.
  absl::Span<const std::byte> frames = {};
};

// Encodes chunks and keeps their residuals. Not thread-safe. After any error other than
// RESOURCE_EXHAUSTED, the device is unusable and the residuals are lost.
class DeviceEncoder {
 public:
  virtual ~DeviceEncoder() = default;

  // Returns true if the device can encode this spec. The processor encodes all other specs.
  virtual bool Encodes(const CodecSpec& spec) const = 0;

  // One chunk to encode. Members have the same meaning as in EncodeInput.
  struct Task {
    size_t chunk = 0;
    size_t count = 0;
    uint32_t rows = 0;
    DeviceGradient gradient{};
    const CodecSpec* spec = nullptr;
    const Codec* codec = nullptr;  // The codec of `spec`.
    float threshold = 0;
    double density = 0;
    uint64_t own_key = 0;
    uint64_t shared_key = 0;
    absl::Span<float> state = {};
    MagnitudeHistogram* magnitudes = nullptr;
    size_t magnitude_stride = 0;
  };
  struct Encoded {
    // True if a value was not finite. The residual is then unchanged, and nothing was counted.
    bool refused = false;
    // Valid until the next Encode.
    absl::Span<const std::byte> payload = {};
    uint64_t kept = 0;
  };
  // Encodes chunks, each at most once. Encodes() must be true for all their specs. `*encoded` gets
  // one entry for each task.
  virtual absl::Status Encode(absl::Span<const Task> tasks, std::vector<Encoded>* encoded) = 0;

  // Sets the residual. An empty span clears it.
  virtual absl::Status WriteResidual(size_t chunk, absl::Span<const float> values) = 0;
  virtual bool has_residual(size_t chunk) const = 0;
  // Copies the residual of a chunk to `values`. The chunk must have a residual, and `values` must
  // have its size.
  virtual absl::Status ReadResidual(size_t chunk, absl::Span<float> values) = 0;
};

// A device that can encode and add. Only one thread at a time may use a device and its encoders.
class EncodingDevice {
 public:
  virtual ~EncodingDevice() = default;

  // Makes an encoder for chunks 0 to `chunks` - 1. The device must outlive the encoder.
  virtual std::unique_ptr<DeviceEncoder> MakeEncoder(size_t chunks) = 0;
  // Copies gradients to the host without conversion. `*copies` receives the addresses of the
  // copies, which are valid until the next call. Fails with RESOURCE_EXHAUSTED or INTERNAL.
  virtual absl::Status Read(absl::Span<const DeviceRead> reads,
                            std::vector<const std::byte*>* copies) = 0;
  // Adds frames to sums, each frame once, after the event `ready` (immediately if it is null).
  // Returns when the sums are complete; they have the same bits as on the processor. Fails with
  // RESOURCE_EXHAUSTED or INTERNAL, and the sums are then invalid.
  virtual absl::Status Add(absl::Span<const DeviceSum> sums, void* ready) = 0;
};

}  // namespace sluice::compress
