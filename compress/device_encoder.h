// What a Compressor asks of a device on which gradients lie: to encode them there, with the bytes
// and the residuals of the codecs that run on a processor. compress/gpu has the one that there is.
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

// A chunk's gradient as it lies on a device.
struct DeviceGradient {
  const void* data = nullptr;  // Null: it does not lie on a device.
  ElementType type = ElementType::kFloat32;
  float scale = 1;  // What each element is multiplied by.
  // An event of the device's run-time: from then on the gradient is what it should be. Null: it is.
  void* ready = nullptr;
};

// What of a gradient is to be copied to the host.
struct DeviceRead {
  DeviceGradient gradient{};
  size_t bytes = 0;
};

// A chunk's sum as it lies on a device, and what is to be added to it.
struct DeviceSum {
  float* sum = nullptr;
  size_t count = 0;
  bool from_zero = false;  // Whatever is there before does not count.
  // That AddValidFrames would add; they may be none.
  absl::Span<const std::byte> frames = {};
};

// Encodes chunks and keeps their residuals. Not thread-safe. After an error that is not
// RESOURCE_EXHAUSTED the device is of no use, and residuals are lost.
class DeviceEncoder {
 public:
  virtual ~DeviceEncoder() = default;

  // Whether it can. Others are encoded on the processor.
  virtual bool Encodes(const CodecSpec& spec) const = 0;

  // One chunk to be encoded; all members are as EncodeInput has them.
  struct Task {
    size_t chunk = 0;
    size_t count = 0;
    uint32_t rows = 0;
    DeviceGradient gradient{};
    const CodecSpec* spec = nullptr;
    const Codec* codec = nullptr;  // That of the spec.
    float threshold = 0;
    double density = 0;
    uint64_t own_key = 0;
    uint64_t shared_key = 0;
    absl::Span<float> state = {};
    MagnitudeHistogram* magnitudes = nullptr;
    size_t magnitude_stride = 0;
  };
  struct Encoded {
    bool refused = false;  // Something was not finite: the residual is as it was, nothing counted.
    absl::Span<const std::byte> payload = {};  // Until the next Encode.
    uint64_t kept = 0;
  };
  // Each chunk at most once; all of specs that Encodes. `*encoded` becomes one for each task.
  virtual absl::Status Encode(absl::Span<const Task> tasks, std::vector<Encoded>* encoded) = 0;

  // Empty `values`: it becomes none, as at first.
  virtual absl::Status WriteResidual(size_t chunk, absl::Span<const float> values) = 0;
  virtual bool has_residual(size_t chunk) const = 0;
  // Of a chunk that has one, into as many floats.
  virtual absl::Status ReadResidual(size_t chunk, absl::Span<float> values) = 0;
};

// Used from one thread at a time, its encoders included.
class EncodingDevice {
 public:
  virtual ~EncodingDevice() = default;

  // Of chunks 0 to chunks - 1. The device outlives it.
  virtual std::unique_ptr<DeviceEncoder> MakeEncoder(size_t chunks) = 0;
  // Copies gradients to the host as they are: `*copies` becomes their addresses there, good until
  // the next call. Errors: RESOURCE_EXHAUSTED, INTERNAL.
  virtual absl::Status Read(absl::Span<const DeviceRead> reads,
                            std::vector<const std::byte*>* copies) = 0;
  // Adds frames to sums, each of them once, once the event `ready` has come to pass (null: at
  // once): the bits that the processor would make. It is done when this returns. Errors:
  // RESOURCE_EXHAUSTED, INTERNAL; then the sums mean nothing.
  virtual absl::Status Add(absl::Span<const DeviceSum> sums, void* ready) = 0;
};

}  // namespace sluice::compress
