// SPDX-License-Identifier: Apache-2.0
// Access to scalars at any offset of a payload whose size has been checked, and errors that all
// payload formats share.
#pragma once

#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::compress {

// Parts of a chunk that are decoded alone begin at multiples of this number of elements.
inline constexpr size_t kPartUnit = 256;

template <typename T>
T LoadAt(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void StoreAt(std::byte* bytes, size_t index, T value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

inline absl::Status PayloadSizeError(absl::string_view codec, size_t count, size_t wanted,
                                     size_t found) {
  return absl::InvalidArgumentError(absl::StrCat(codec, " payload for ", count, " elements has ",
                                                 found, " bytes, should have ", wanted));
}

}  // namespace sluice::compress
