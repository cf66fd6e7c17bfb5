// SPDX-License-Identifier: Apache-2.0
// ByteReader and ByteWriter: read and write little-endian scalars in byte strings. The reader
// checks every length that it reads.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"

namespace sluice {

static_assert(std::endian::native == std::endian::little,
              "Sluice's formats are little-endian and are copied without conversion");

// Reads from the front of a span. After a failed read, `ok()` stays false and every read returns 0
// or an empty span.
class ByteReader {
 public:
  explicit ByteReader(absl::Span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
  T Read() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const absl::Span<const std::byte> bytes = ReadBytes(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  absl::Span<const std::byte> ReadBytes(size_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const absl::Span<const std::byte> bytes = rest_.first(count);
    rest_.remove_prefix(count);
    return bytes;
  }
  bool ok() const { return ok_; }
  size_t remaining() const { return ok_ ? rest_.size() : 0; }

 private:
  absl::Span<const std::byte> rest_;
  bool ok_ = true;
};

// Appends scalars to a vector that the caller owns.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>* out) : out_(out) {}

  template <typename T>
  void Write(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t at = out_->size();
    out_->resize(at + sizeof(T));
    std::memcpy(out_->data() + at, &value, sizeof(T));
  }
  void WriteBytes(absl::Span<const std::byte> bytes) {
    out_->insert(out_->end(), bytes.begin(), bytes.end());
  }
  size_t size() const { return out_->size(); }

 private:
  std::vector<std::byte>* const out_;
};

}  // namespace sluice
