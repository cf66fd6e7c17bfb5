// SPDX-License-Identifier: Apache-2.0
// TensorTable: the ordered list of a job's tensors. Trained tensors come first, then buffers, which
// are averaged at intervals. The tables of all workers must be equal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::protocol {

enum class DType : uint8_t { kFloat32 = 1, kFloat16 = 2, kBFloat16 = 3 };

enum class TensorRole : uint8_t {
  kTrained = 0,  // The gradient is exchanged in every step.
  // The tensor is not trained; BatchNorm's running statistics are an example. Its values are
  // averaged in some steps.
  kBuffer = 1,
};

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // In elements; empty means row-major.
  DType dtype = DType::kFloat32;
  TensorRole role = TensorRole::kTrained;

  // Returns 0 if a dimension is below 1, and the largest uint64_t if the product overflows.
  uint64_t elements() const;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

using TensorTable = std::vector<TensorInfo>;

inline constexpr size_t kMaxTensors = 1 << 16;
inline constexpr uint64_t kMaxTensorElements = uint64_t{1} << 40;
inline constexpr size_t kMaxTensorNameSize = 512;
inline constexpr size_t kMaxTensorRank = 64;

// Fails with INVALID_ARGUMENT, naming the tensor, if
// - no tensor is trained, or a buffer comes before a trained tensor,
// - a name is empty or repeated,
// - a dimension is below 1, or strides leave gaps or overlap, or
// - a limit above is exceeded.
absl::Status ValidateTensorTable(const TensorTable& table);

// Hashes names, shapes, strides, dtypes and roles, in order. The hash is the same on every machine.
uint64_t HashTensorTable(const TensorTable& table);

// Describes the first difference between two tables in readable form: "tensor 3 is fc1.weight [128,
// 1568] here and fc1.weight [256, 1568] there". Returns an empty string if the tables are equal.
std::string DescribeDifference(const TensorTable& here, const TensorTable& there);

// Returns the number of elements of all trained tensors.
uint64_t TrainedElements(const TensorTable& table);
// Returns the number of trained tensors. Tensors at and after this index are buffers.
uint32_t TrainedTensors(const TensorTable& table);
// Returns the number of elements of all tensors, including buffers.
uint64_t TotalElements(const TensorTable& table);

// Returns, for example, "fc1.weight [128, 1568] float32" or "norm.running_mean [128] float32
// buffer".
std::string ToString(const TensorInfo& tensor);

}  // namespace sluice::protocol
