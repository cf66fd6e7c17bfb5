// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/byte_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "compress/codec_facts.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::planning {
namespace {

// Fields of protobuf: a key of one byte, and a second one from field 16 on.
constexpr uint64_t kKey = 1;
constexpr uint64_t kFixed32 = kKey + 4;
// A gRPC message has a prefix of 5 bytes, and each HTTP/2 frame of at most 16 KiB a header.
constexpr uint64_t kGrpcPrefix = 5;
constexpr uint64_t kHttp2Header = 9;
constexpr uint64_t kHttp2Frame = 16384;

uint64_t VarintBytes(uint64_t value) {
  uint64_t bytes = 1;
  for (; value >= 128; value >>= 7) ++bytes;
  return bytes;
}

// proto3 omits fields with the value 0.
uint64_t Field(uint64_t value) { return value == 0 ? 0 : kKey + VarintBytes(value); }

uint64_t Nested(uint64_t bytes) { return kKey + VarintBytes(bytes) + bytes; }

uint64_t IncludedBytes(const protocol::Included& included) {
  return Field(included.rank) + Field(included.origin_step) +
         (included.checksum == 0 ? 0 : kFixed32) + Field(included.skipped ? 1 : 0) +
         (included.weight == 1 ? 0 : Field(included.weight));
}

uint64_t RecordBytes(const protocol::ClosingRecord& record) {
  uint64_t bytes = Field(record.term) + Field(record.step) + Field(record.bundle) +
                   Field(record.generation) + Field(record.n) + Field(record.plan_id) +
                   (record.rate == 0 ? 0 : kFixed32) + (record.momentum == 0 ? 0 : kFixed32) +
                   (record.result_checksum == 0 ? 0 : kFixed32);
  for (const protocol::Included& included : record.included)
    bytes += Nested(IncludedBytes(included));
  return bytes;
}

uint64_t Framed(uint64_t message) {
  const uint64_t bytes = message + kGrpcPrefix;
  return bytes + kHttp2Header * ((bytes + kHttp2Frame - 1) / kHttp2Frame);
}

}  // namespace

ByteModel::ByteModel(const protocol::CompressionSpec& compression,
                     const protocol::TensorTable& table, const protocol::Layout& layout,
                     const MachineCosts& costs)
    : layout_(layout),
      costs_(costs),
      uplink_(protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kUplink)),
      downlink_(
          protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kDownlink)) {}

BundleCost ByteModel::OfChunk(const compress::CodecSpec& spec, const protocol::Chunk& chunk) const {
  const auto elements = static_cast<double>(chunk.count);
  compress::CodecPrice price{
      .bits = 0, .error = 0, .encode_ns = costs_.encode_ns, .add_ns = costs_.add_ns};
  double payload = 0;
  const auto price_of = compress::FindCodec(spec.codec).facts.price.value();
  if (price_of != nullptr) {
    price = price_of(spec);
    price.encode_ns *= costs_.codec_scale;
    price.add_ns *= costs_.codec_scale;
    payload = price.bits / 8 * elements;
  } else {
    payload =
        static_cast<double>(compress::MakeCodec(spec)->MaxPayloadSize(chunk.count, chunk.rows));
  }
  return {
      .bytes = Nested(compress::kFrameHeaderSize + static_cast<uint64_t>(std::llround(payload))),
      .encode_ns = price.encode_ns * elements,
      .add_ns = price.add_ns * elements};
}

BundleCosts ByteModel::Sum(absl::Span<const compress::CodecSpec> specs,
                           protocol::Direction direction) const {
  BundleCosts costs;
  for (const std::vector<protocol::Bundle>& bundles : layout_.bundles) {
    costs.emplace_back();
    for (const protocol::Bundle& bundle : bundles) {
      BundleCost sum;
      for (const uint32_t chunk : bundle.chunks) {
        const BundleCost one = OfChunk(specs[chunk], layout_.chunks[chunk]);
        // A request has a Contribution around each frame.
        sum.bytes += direction == protocol::Direction::kUplink ? Nested(one.bytes) : one.bytes;
        sum.encode_ns += one.encode_ns;
        sum.add_ns += one.add_ns;
      }
      costs.back().push_back(sum);
    }
  }
  return costs;
}

BundleCosts ByteModel::CostsUnder(const protocol::CompressionPlan* plan,
                                  protocol::Direction direction, uint32_t rank) const {
  const bool is_up = direction == protocol::Direction::kUplink;
  return Sum(protocol::SpecsUnder(plan, direction, rank, is_up ? uplink_ : downlink_), direction);
}

BundleCosts ByteModel::OfParameters() const {
  return Sum(
      std::vector<compress::CodecSpec>(layout_.chunks.size(), {.codec = compress::CodecId::kNone}),
      protocol::Direction::kDownlink);
}

std::vector<compress::CodecSpec> ByteModel::Unpriced() const {
  std::map<std::string, compress::CodecSpec> found;
  for (const std::vector<compress::ChunkConfig>* chunks : {&uplink_, &downlink_}) {
    for (const compress::ChunkConfig& chunk : *chunks) {
      if (!compress::MayChange(chunk.spec.codec)) found[ToString(chunk.spec)] = chunk.spec;
    }
  }
  std::vector<compress::CodecSpec> specs;
  specs.reserve(found.size());
  for (const auto& [name, spec] : found) specs.push_back(spec);
  return specs;
}

uint64_t MessageBytes(const protocol::ExchangeRequest& exchange, uint64_t frame_bytes) {
  constexpr uint64_t kReadyNs = 2 * kKey + 7;
  return Framed(frame_bytes + Field(exchange.step) + Field(exchange.bundle) +
                Field(exchange.skip ? 1 : 0) + Field(exchange.plan_id) +
                Field(exchange.base_version) + Field(exchange.acked_step) +
                Field(exchange.sender.generation) + (exchange.rate == 0 ? 0 : kFixed32) + kReadyNs);
}

uint64_t MessageBytes(const protocol::ExchangeReply& answer, uint64_t frame_bytes) {
  constexpr uint64_t kReadyNs = 2 * kKey + 7;
  uint64_t bytes = Field(1) + Field(answer.step) + Field(answer.bundle) +
                   Field(answer.base_version) + Field(answer.version) + Field(answer.open_step) +
                   Field(answer.need_from) + answer.message.size() + kReadyNs;
  if (answer.outcome == protocol::Outcome::kResult) bytes += Nested(RecordBytes(answer.record));
  for (const uint32_t rank : answer.members) bytes += VarintBytes(rank);
  return Framed(bytes + frame_bytes);
}

}  // namespace sluice::planning
