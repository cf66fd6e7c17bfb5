// SPDX-License-Identifier: Apache-2.0
// FuzzInput: reads a fuzzer's bytes as the values that a property needs. After the end of the
// input, all values are 0.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/crc32c.h"
#include "compress/codec_spec.h"
#include "compress/frame.h"

namespace sluice {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size)
      : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() { return Take<uint8_t>(); }
  uint16_t Short() { return Take<uint16_t>(); }
  absl::Span<const std::byte> Bytes(size_t count) {
    const absl::Span<const std::byte> bytes = rest_.first(std::min(count, rest_.size()));
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  absl::Span<const std::byte> Rest() { return Bytes(rest_.size()); }
  // Reads up to and including the next line break. Returns the text without the line break.
  std::string Line() {
    std::string line;
    while (!rest_.empty()) {
      const char c = static_cast<char>(Byte());
      if (c == '\n') break;
      line += c;
    }
    return line;
  }
  // Reads a line with a spec. Returns nullopt if the line is not a spec.
  std::optional<compress::CodecSpec> Spec() {
    const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(Line());
    if (!spec.ok()) return std::nullopt;
    return *spec;
  }
  // Returns finite floats. If the input is too short, its values are repeated, smaller each time.
  std::vector<float> Floats(size_t count) {
    std::vector<float> values(count);
    const size_t given = std::min(count, rest_.size() / sizeof(float));
    for (size_t i = 0; i < count; ++i) {
      if (i < given) {
        uint32_t bits = Take<uint32_t>();
        if ((bits & 0x7F800000) == 0x7F800000) bits &= ~uint32_t{0x40000000};
        values[i] = std::bit_cast<float>(bits);
      } else if (given > 0) {
        values[i] = values[i - given] * 0.75f;
      }
    }
    return values;
  }

 private:
  template <typename T>
  T Take() {
    T value{};
    const absl::Span<const std::byte> bytes = Bytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  absl::Span<const std::byte> rest_;
};

// Changes the header so that it matches the bytes, because a malicious sender can also compute a
// checksum. The format and the element count stay the same. Does nothing if the bytes are too short
// for a header.
inline void SealFrame(std::vector<std::byte>* frame) {
  if (frame->size() < compress::kFrameHeaderSize) return;
  const auto payload_size = static_cast<uint32_t>(frame->size() - compress::kFrameHeaderSize);
  std::memcpy(frame->data(), "SL\1", 3);
  std::memcpy(frame->data() + 8, &payload_size, sizeof(payload_size));
  std::memset(frame->data() + 12, 0, 4);
  const absl::Span<const std::byte> bytes = *frame;
  const uint32_t checksum =
      ExtendCrc32c(Crc32c(bytes.first(16)), bytes.subspan(compress::kFrameHeaderSize));
  std::memcpy(frame->data() + 16, &checksum, sizeof(checksum));
}

}  // namespace sluice
