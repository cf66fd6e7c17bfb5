// SPDX-License-Identifier: Apache-2.0
#include "compress/frame.h"

#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::byte> SmallFrame() {
  const std::vector<float> values = {1.0f, -2.0f, 0.5f};
  std::vector<std::byte> frame;
  EXPECT_TRUE(EncodeFrame(*CodecFor("none"), {values, {}}, &frame).ok());
  return frame;
}

// Recomputes the checksum after a change.
void Seal(std::vector<std::byte>* frame) {
  const absl::Span<const std::byte> bytes = *frame;
  const uint32_t checksum = ExtendCrc32c(Crc32c(bytes.first(16)), bytes.subspan(kFrameHeaderSize));
  std::memcpy(frame->data() + 16, &checksum, sizeof(checksum));
}

std::string ErrorWith(size_t at, uint8_t value) {
  std::vector<std::byte> frame = SmallFrame();
  frame[at] = std::byte{value};
  Seal(&frame);
  return std::string(ReadFrameHeader(frame).status().message());
}

TEST(Frame, HeaderReadsBack) {
  const std::vector<std::byte> frame = SmallFrame();
  const absl::StatusOr<FrameHeader> header = ReadFrameHeader(frame);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->format, FormatId::kNone);
  EXPECT_EQ(header->count, 3u);
  EXPECT_EQ(header->payload_size, 12u);
  EXPECT_EQ(header->checksum, FrameChecksum(frame));
}

TEST(Frame, ErrorsTellApartWhatIsWrong) {
  EXPECT_THAT(std::string(ReadFrameHeader({}).status().message()), HasSubstr("not a frame"));
  EXPECT_THAT(ErrorWith(0, 'X'), HasSubstr("not a frame"));
  EXPECT_THAT(ErrorWith(2, 2), AllOf(HasSubstr("frame version 2"), HasSubstr("reads version 1")));
  EXPECT_THAT(ErrorWith(2, 2), HasSubstr("newer"));
  EXPECT_THAT(ErrorWith(3, 99), HasSubstr("unknown format 99"));
  EXPECT_THAT(ErrorWith(12, 1), HasSubstr("flags 1"));
  EXPECT_THAT(ErrorWith(14, 4), HasSubstr("reserved 4"));
  EXPECT_THAT(ErrorWith(8, 13), HasSubstr("truncated frame: its header says 13 bytes"));
  EXPECT_THAT(ErrorWith(8, 11), HasSubstr("bytes after the frame's end"));

  std::vector<std::byte> frame = SmallFrame();
  EXPECT_THAT(std::string(ValidateFrame(frame, 4).message()),
              AllOf(HasSubstr("frame of 3 elements"), HasSubstr("chunk of 4")));
  frame.resize(19);
  EXPECT_THAT(std::string(ReadFrameHeader(frame).status().message()),
              HasSubstr("truncated frame: 19 bytes"));
}

TEST(Frame, DamageIsDataLoss) {
  std::vector<std::byte> frame = SmallFrame();
  frame[25] ^= std::byte{4};
  EXPECT_EQ(ReadFrameHeader(frame).status().code(), absl::StatusCode::kDataLoss);
  frame = SmallFrame();
  frame[3] ^= std::byte{1};  // This format is also known, so only the checksum is wrong.
  EXPECT_EQ(ReadFrameHeader(frame).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Frame, NoNanOrInfinityGetsIn) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<std::byte> frame = SmallFrame();
    std::memcpy(frame.data() + kFrameHeaderSize + 4, &bad, sizeof(bad));
    Seal(&frame);
    std::vector<float> sum = {1, 2, 3};
    const absl::Status status = DecodeAddFrame(frame, absl::MakeSpan(sum));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(sum, (std::vector<float>{1, 2, 3}));
  }
}

TEST(Frame, TooLargeIsRefusedBeforeWork) {
  const std::vector<float> values((4 << 20) / sizeof(float), 1.0f);
  std::vector<std::byte> frame;
  const absl::Status status = EncodeFrame(*CodecFor("none"), {values, {}}, &frame);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cut the tensor into smaller chunks"));
  EXPECT_TRUE(frame.empty());
}

TEST(Frame, ResidualOfAnotherSizeIsRefused) {
  const std::vector<float> values(10, 1.0f);
  std::vector<float> residual(9);
  for (const CodecEntry& entry : Codecs()) {
    std::vector<std::byte> frame;
    EXPECT_FALSE(EncodeFrame(*CodecFor(std::string(entry.example)),
                             {values, absl::MakeSpan(residual)}, &frame)
                     .ok());
  }
}

}  // namespace
}  // namespace sluice::compress
