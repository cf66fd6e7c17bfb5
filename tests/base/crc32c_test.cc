#include "base/crc32c.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(Crc32c, KnownValues) {
  // RFC 3720, B.4, and the customary check value.
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xE3069283u);
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

}  // namespace
}  // namespace sluice
