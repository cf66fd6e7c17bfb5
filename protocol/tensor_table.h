// TensorTable: the ordered tensors of a job: what is trained, then the buffers that are averaged
// now and then. All workers must agree on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::protocol {

enum class DType : uint8_t { kFloat32 = 1, kFloat16 = 2, kBFloat16 = 3 };

enum class TensorRole : uint8_t {
  kTrained = 0,  // Its gradient is exchanged in every step.
  kBuffer = 1,   // Not trained (BatchNorm's running statistics): its values are averaged in some.
};

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // In elements; empty: row-major.
  DType dtype = DType::kFloat32;
  TensorRole role = TensorRole::kTrained;

  // 0 with a dimension below 1; the largest uint64_t where the product does not fit.
  uint64_t elements() const;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

using TensorTable = std::vector<TensorInfo>;

inline constexpr size_t kMaxTensors = 1 << 16;
inline constexpr uint64_t kMaxTensorElements = uint64_t{1} << 40;
inline constexpr size_t kMaxTensorNameSize = 512;
inline constexpr size_t kMaxTensorRank = 64;

// INVALID_ARGUMENT: nothing that is trained, a buffer before it, a doubled or empty name, a
// dimension below 1, strides that leave gaps or overlap, over the limits above. Names the tensor.
absl::Status ValidateTensorTable(const TensorTable& table);

// Over names, shapes, strides, dtypes and roles, in order. The same on every machine.
uint64_t HashTensorTable(const TensorTable& table);

// What differs first, for a person: "tensor 3 is fc1.weight [128, 1568] here and fc1.weight [256,
// 1568] there". Empty if equal.
std::string DescribeDifference(const TensorTable& here, const TensorTable& there);

// Without buffers.
uint64_t TrainedElements(const TensorTable& table);
// How many tensors are trained. Those at and after this index are buffers.
uint32_t TrainedTensors(const TensorTable& table);
// Of all tensors, buffers too.
uint64_t TotalElements(const TensorTable& table);

// "fc1.weight [128, 1568] float32", "norm.running_mean [128] float32 buffer".
std::string ToString(const TensorInfo& tensor);

}  // namespace sluice::protocol
