// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(Bytes, RoundTripAndEnd) {
  std::vector<std::byte> bytes;
  ByteWriter writer(&bytes);
  writer.Write<uint8_t>(7);
  writer.Write<uint32_t>(0x01020304);
  writer.Write<float>(1.5f);
  ASSERT_EQ(bytes.size(), 9u);
  EXPECT_EQ(bytes[1], std::byte{4});  // Little-endian.

  ByteReader reader(bytes);
  EXPECT_EQ(reader.Read<uint8_t>(), 7);
  EXPECT_EQ(reader.Read<uint32_t>(), 0x01020304u);
  EXPECT_EQ(reader.Read<float>(), 1.5f);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(reader.Read<uint8_t>(), 0);
  EXPECT_FALSE(reader.ok());
}

TEST(Bytes, AFailedReadStaysFailed) {
  const std::vector<std::byte> bytes(3, std::byte{1});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.Read<uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Read<uint8_t>(), 0);
  EXPECT_EQ(reader.remaining(), 0u);
}

}  // namespace
}  // namespace sluice
