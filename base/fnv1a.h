// SPDX-License-Identifier: Apache-2.0
// Fnv1a: a 64-bit hash of bytes (FNV-1a) that is the same on every machine and in every version.
// The hash detects accidental differences but does not protect against deliberate collisions.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace sluice {

class Fnv1a {
 public:
  void Add(absl::string_view bytes) {
    for (const char c : bytes) AddByte(static_cast<uint8_t>(c));
  }
  // Adds the number's bytes in little-endian order.
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<uint8_t>(number >> shift));
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x00000100000001B3u; }

  uint64_t value_ = 0xCBF29CE484222325u;
};

}  // namespace sluice
