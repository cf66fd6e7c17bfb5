// SPDX-License-Identifier: Apache-2.0
// Compares the sizes of the byte model with those of real messages and frames.
#include "planning/simulation/byte_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "protocol/wire/exchange_messages.h"

namespace sluice::planning {
namespace {

constexpr uint64_t kGrpcAndHttp2 = 5 + 9;  // A message below 16 KiB has this overhead.

protocol::ExchangeReply ResultOf(uint32_t ranks) {
  protocol::ExchangeReply answer;
  answer.step = 300;
  answer.bundle = 2;
  answer.record.step = 300;
  answer.record.bundle = 2;
  answer.record.generation = 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    answer.record.included.push_back({.rank = rank, .origin_step = 300, .checksum = 1u << 31});
  }
  answer.record.n = ranks;
  answer.record.result_checksum = 1u << 31;
  answer.base_version = 299;
  answer.version = 300;
  answer.open_step = 300;
  return answer;
}

TEST(ByteModelTest, ARecordOfManyRanksHasItsRealSize) {
  for (const uint32_t ranks : {1u, 100u, 1000u}) {
    const auto answer = std::make_shared<const protocol::ExchangeReply>(ResultOf(ranks));
    const grpc::ByteBuffer real = protocol::ExchangeReplyToBytes(answer, 0, 1ull << 45);
    const double headers = 9.0 * (static_cast<double>(real.Length()) / 16384);
    EXPECT_NEAR(static_cast<double>(MessageBytes(*answer, 0)),
                static_cast<double>(real.Length() + kGrpcAndHttp2) + headers, 16)
        << ranks;
  }
}

TEST(ByteModelTest, FramesHaveAboutTheirRealSizes) {
  protocol::TensorTable table = {{.name = "w", .shape = {65536}, .strides = {}}};
  const protocol::Layout layout = *protocol::BuildLayout(table, 1, {});
  std::vector<float> values(65536);
  CounterRandom random(5);
  for (float& value : values) {
    const double u = 2 * random.Uniform() - 1;
    value = static_cast<float>(u / (1.05 - std::abs(u)));
  }
  for (const char* text : {"none", "fp16", "int8", "topk:1%+int4", "qsgd:4"}) {
    protocol::CompressionSpec compression;
    compression.uplink = *compress::ParseCodecSpec(text);
    compression.downlink = compression.uplink;
    const ByteModel model(compression, table, layout, {});
    std::vector<std::byte> frame;
    const auto codec = compress::MakeCodec(compression.uplink);
    ASSERT_TRUE(compress::EncodeFrame(*codec, {.gradient = values}, &frame).ok());
    auto request = std::make_shared<protocol::ExchangeRequest>();
    request->step = 300;
    request->acked_step = 299;
    request->frames = {std::string(reinterpret_cast<const char*>(frame.data()), frame.size())};
    const auto real = static_cast<double>(
        protocol::ExchangeRequestToBytes(request, nullptr, 1ull << 45, nullptr).Length());
    const BundleCosts costs = model.CostsUnder(nullptr, protocol::Direction::kUplink, 0);
    EXPECT_NEAR(static_cast<double>(MessageBytes(*request, costs[0][0].bytes)), real, 0.15 * real)
        << text;
  }
}

}  // namespace
}  // namespace sluice::planning
