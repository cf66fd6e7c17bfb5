// SPDX-License-Identifier: Apache-2.0
// The safetensors format of Hugging Face, which contains no code: the length of the header in 8
// bytes, a JSON header with the type, shape and position of each tensor, and the values in
// row-major order. All numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/element_type.h"
#include "follow/tensor_layout.h"

namespace sluice::follow {

// A tensor of any type. `type` is its name in safetensors, such as BF16.
struct SafetensorsEntry {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};

// Names and values that describe a file.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

// Returns everything that precedes the values of tensors that follow each other in this order. The
// values begin at a multiple of 8 bytes. The metadata also has the format `pt`.
std::string FormatSafetensorsHeader(absl::Span<const SafetensorsEntry> entries,
                                    const SafetensorsMetadata& metadata = {});

// Works like the function above, for a model whose tensors all have one type.
std::string FormatSafetensorsHeader(const TensorLayout& layout, compress::ElementType type,
                                    const SafetensorsMetadata& metadata = {});

absl::string_view SafetensorsTypeName(compress::ElementType type);

// A model whose tensors all have one type of floats.
struct SafetensorsModel {
  compress::ElementType type = compress::ElementType::kBfloat16;
  TensorLayout layout;    // In the order of the values.
  size_t weights_at = 0;  // Offset of the values in the file, which they end.
};

// Reads the header of a file and checks all of it. `file` is the whole file. Accepts any bytes. The
// header has at most kSafetensorsHeaderMax bytes, names are unique, shapes fit the values, and the
// values follow each other without gaps. Fails with INVALID_ARGUMENT; the message names the tensor
// and the remedy.
inline constexpr size_t kSafetensorsHeaderMax = size_t{32} << 20;
absl::StatusOr<SafetensorsModel> ParseSafetensors(absl::Span<const std::byte> file);

}  // namespace sluice::follow
