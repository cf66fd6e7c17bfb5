// SPDX-License-Identifier: Apache-2.0
#include "protocol/exchange.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::protocol {
namespace {

std::string FrameOf(const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  EXPECT_TRUE(compress::EncodeFrame(*compress::MakeCodec(compress::CodecSpec()),
                                    {values, {}, 0, nullptr}, &bytes)
                  .ok());
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(BundleChecksum, IsTheCrcOfTheFramesChecksums) {
  const std::vector<std::string> frames = {FrameOf({1, 2, 3}), FrameOf({4})};
  const uint32_t sums[] = {compress::FrameChecksum(BytesOf(frames[0])),
                           compress::FrameChecksum(BytesOf(frames[1]))};
  EXPECT_EQ(BundleChecksum(frames), Crc32c({reinterpret_cast<const std::byte*>(sums), 8}));
}

TEST(BundleChecksum, DependsOnOrderAndContent) {
  const std::string a = FrameOf({1}), b = FrameOf({2});
  EXPECT_NE(BundleChecksum({a, b}), BundleChecksum({b, a}));
  EXPECT_NE(BundleChecksum({a}), BundleChecksum({a, a}));
  EXPECT_EQ(BundleChecksum(std::vector<std::string>()), 0u);
}

TEST(BundleChecksum, TakesAnyBytes) {
  EXPECT_EQ(BundleChecksum({""}),
            BundleChecksum({std::string(compress::kFrameHeaderSize - 1, 'x')}));
}

}  // namespace
}  // namespace sluice::protocol
