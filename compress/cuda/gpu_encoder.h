// GpuEncoder: encodes chunks where their gradients lie, and keeps their residuals there: the bytes
// and the residuals of the codecs that run on a processor. All chunks that are encoded at once take
// a few launches, whatever their number, and three waits: none for a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"
#include "compress/cuda/device.h"
#include "compress/element_type.h"

namespace sluice::gpu {

// A chunk's gradient as it lies on a device.
struct DeviceGradient {
  const void* data = nullptr;  // Null: it does not lie on a device.
  ElementType type = ElementType::kFloat32;
  float scale = 1;  // What each element is multiplied by.
  // An event of the device's run-time: from then on the gradient is what it should be. Null: it is.
  void* ready = nullptr;
};

// Memory of a device, or of the host for copies to and from it, that is used again and again.
class DeviceBuffer {
 public:
  DeviceBuffer(Device* device, bool pinned) : device_(device), pinned_(pinned) {}
  ~DeviceBuffer() { Release(); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // At least so many bytes; what was in it is lost where it has to grow. RESOURCE_EXHAUSTED: there
  // is no room.
  absl::Status Reserve(size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void Release();

  Device* const device_;
  const bool pinned_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Not thread-safe. After an error that is not RESOURCE_EXHAUSTED the device is of no use, and
// residuals are lost.
class GpuEncoder {
 public:
  // Of chunks 0 to chunks - 1. The device outlives it.
  GpuEncoder(Device* device, size_t chunks);
  ~GpuEncoder();
  GpuEncoder(const GpuEncoder&) = delete;
  GpuEncoder& operator=(const GpuEncoder&) = delete;

  // Whether there are kernels for it. Others are encoded on the processor.
  static bool Encodes(const CodecSpec& spec);

  // One chunk to be encoded; all members are as EncodeInput has them.
  struct Task {
    size_t chunk = 0;
    size_t count = 0;
    DeviceGradient gradient{};
    const CodecSpec* spec = nullptr;
    const Codec* codec = nullptr;  // That of the spec.
    float threshold = 0;
    double density = 0;
    uint64_t own_key = 0;
    uint64_t shared_key = 0;
    absl::Span<const float> state = {};
    MagnitudeHistogram* magnitudes = nullptr;
    size_t magnitude_stride = 0;
  };
  struct Encoded {
    bool refused = false;  // Something was not finite: the residual is as it was, nothing counted.
    absl::Span<const std::byte> payload = {};  // Until the next Encode.
    uint64_t kept = 0;
  };
  // Each chunk at most once; all of specs that Encodes. `*encoded` becomes one for each task.
  absl::Status Encode(absl::Span<const Task> tasks, std::vector<Encoded>* encoded);

  // Empty `values`: it becomes none, as at first.
  absl::Status WriteResidual(size_t chunk, absl::Span<const float> values);
  bool has_residual(size_t chunk) const { return residuals_[chunk].values != nullptr; }
  // Of a chunk that has one, into as many floats.
  absl::Status ReadResidual(size_t chunk, absl::Span<float> values);
  // Copies `bytes` of a gradient as they are.
  absl::Status Read(const DeviceGradient& gradient, size_t bytes, void* to);

 private:
  struct Residual {
    float* values = nullptr;
    size_t count = 0;
  };
  struct Batch;

  absl::Status Wait();
  absl::Status TakeFloats(size_t count, float** floats);
  void GiveFloats(float* floats, size_t count);
  absl::Status MakeResidual(const Task& task);
  absl::Status Prepare(absl::Span<const Task> tasks, Batch* batch);
  absl::Status OwnThresholds(Batch* batch);
  absl::Status SampleWithoutRefused(Batch* batch);
  void Launch(Batch* batch);
  absl::Status FetchPayloads(Batch* batch, std::vector<Encoded>* encoded);

  Device* const device_;
  std::vector<Residual> residuals_;
  // Of as many floats as a chunk: what an encoding leaves goes there, and the residual that it was
  // made from comes back, unless the chunk is refused.
  std::multimap<size_t, float*> spare_;
  DeviceBuffer inputs_, results_, room_, payloads_;
  DeviceBuffer host_inputs_, host_results_, host_payloads_, host_copy_;
};

}  // namespace sluice::gpu
