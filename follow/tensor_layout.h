// SPDX-License-Identifier: Apache-2.0
// TensorLayout: the names and shapes of a model's tensors in the order of their weights. Two
// versions of a model have the same layout, and its digest stands for it in patches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "follow/sha256.h"

namespace sluice::follow {

struct NamedShape {
  std::string name;
  std::vector<uint64_t> shape;

  bool operator==(const NamedShape&) const = default;
};
using TensorLayout = std::vector<NamedShape>;

// Limits of models and of patches.
inline constexpr uint64_t kElementsMax = uint64_t{1} << 40;
inline constexpr size_t kTensorsMax = size_t{1} << 20;
inline constexpr size_t kTensorNameMax = 1024;
inline constexpr size_t kRankMax = 16;
inline constexpr size_t kLayoutBytesMax = size_t{16} << 20;

// Returns the number of elements of one tensor. Fails with INVALID_ARGUMENT if it is above
// kElementsMax.
absl::StatusOr<uint64_t> ElementsOf(const NamedShape& tensor);

// Checks the limits, and that names are unique UTF-8. Returns the number of elements. Errors have
// the code INVALID_ARGUMENT and name the tensor.
absl::StatusOr<uint64_t> CheckLayout(const TensorLayout& layout);

// Returns the layout as bytes (docs/patch-format.md). CheckLayout must have accepted it.
std::vector<std::byte> SerializeLayout(const TensorLayout& layout);
// Accepts exactly the bytes that SerializeLayout returns for a layout that CheckLayout accepts.
absl::StatusOr<TensorLayout> ParseLayout(absl::Span<const std::byte> bytes);

Digest LayoutDigest(const TensorLayout& layout);

}  // namespace sluice::follow
