// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(Crc32c, KnownValues) {
  // Test vectors from RFC 3720, B.4, and the customary check value.
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(ExtendCrc32c(Crc32c("1234"), "56789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\xff'))), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(Bytes("")), 0u);
}

TEST(Crc32c, ExtendsInPieces) {
  std::string text;
  for (int i = 0; i < 100; ++i) text.push_back(static_cast<char>(i * 37));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(ExtendCrc32c(Crc32c(Bytes(text.substr(0, cut))), Bytes(text.substr(cut))),
              Crc32c(Bytes(text)));
  }
}

TEST(Crc32c, LongTextsEqualTheirShortPieces) {
  std::string text;
  for (uint32_t i = 0; i < 10000; ++i) text.push_back(static_cast<char>(i * i * 37 + i));
  for (const size_t size : {3071u, 3072u, 3073u, 3080u, 6143u, 6144u, 6151u, 10000u}) {
    uint32_t crc = 0;
    for (size_t at = 0; at < size; at += 100) {
      crc = ExtendCrc32c(crc, Bytes(text.substr(at, std::min<size_t>(100, size - at))));
    }
    EXPECT_EQ(Crc32c(Bytes(text.substr(0, size))), crc) << size;
  }
}

}  // namespace
}  // namespace sluice
