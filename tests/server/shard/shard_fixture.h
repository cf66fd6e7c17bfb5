// SPDX-License-Identifier: Apache-2.0
// A small shard and requests from its workers, for tests of the shard's core.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "server/shard/shard.h"

namespace sluice::server {

inline constexpr uint64_t kJob = 77;

inline compress::CodecSpec Spec(absl::string_view text) { return *compress::ParseCodecSpec(text); }

inline std::string EncodedFrame(const std::vector<float>& values, absl::string_view spec = "none") {
  std::vector<std::byte> frame;
  const absl::Status encoded = compress::EncodeFrame(*compress::MakeCodec(Spec(spec)),
                                                     {.gradient = values, .residual = {}}, &frame);
  Check(encoded.ok(), "a test's values can be encoded");
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

inline std::vector<float> DecodedFrame(const std::string& frame, size_t count) {
  std::vector<float> values(count);
  const absl::Status decoded =
      compress::DecodeAddFrame(protocol::FrameBytes(frame), absl::MakeSpan(values));
  Check(decoded.ok(), "a result decodes");
  return values;
}

// Returns a shard with two bundles in sending order: bundle 0 holds "late" (2 elements); bundle 1
// holds "early" (4 elements in chunks of 3 and 1).
inline ShardOptions SmallShard(uint32_t ranks, absl::string_view downlink = "none") {
  ShardOptions options;
  options.table = {
      {.name = "early", .shape = {4}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "late", .shape = {2}, .strides = {}, .dtype = protocol::DType::kFloat32}};
  options.layout.chunks = {{.tensor = 0, .offset = 0, .count = 3, .shard = 0, .bundle = 1},
                           {.tensor = 0, .offset = 3, .count = 1, .shard = 0, .bundle = 1},
                           {.tensor = 1, .offset = 0, .count = 2, .shard = 0, .bundle = 0}};
  options.layout.bundles = {{{.chunks = {2}, .elements = 2}, {.chunks = {0, 1}, .elements = 4}}};
  options.exchange.compression.downlink = Spec(downlink);
  options.exchange.compression.min_elements = 0;
  options.job_uid = kJob;
  options.server_incarnation = 5;
  for (uint32_t rank = 0; rank < ranks; ++rank) options.incarnations.push_back(100 + rank);
  return options;
}

// Returns SmallShard with plans: density 50 % from step 1 on, and 25 % from step 4 on. Shard 0 is
// empty if `shard` is 1.
inline ShardOptions ScheduledPlans(job::Mode mode, uint32_t shard = 0) {
  ShardOptions options = SmallShard(2, "topk:10%");
  options.exchange.mode = mode;
  options.exchange.compression.uplink = Spec("topk:10%");
  options.exchange.control = {
      .policy = job::PolicyKind::kSchedule,
      .schedule = {.kind = job::ScheduleKind::kPiecewise, .pieces = {{0, 0.5}, {3, 0.25}}}};
  if (shard == 1) {
    options.shard = 1;
    for (protocol::Chunk& chunk : options.layout.chunks) chunk.shard = 1;
    options.layout.bundles.insert(options.layout.bundles.begin(), std::vector<protocol::Bundle>());
  }
  return options;
}

// Returns the contribution of `rank` to a bundle of SmallShard. All elements are `value`.
inline protocol::ExchangeRequest Contribution(uint32_t rank, uint64_t step, uint32_t bundle,
                                              float value) {
  protocol::ExchangeRequest exchange;
  exchange.sender = {.job_uid = kJob, .rank = rank, .incarnation = 100 + rank, .generation = 1};
  exchange.step = step;
  exchange.bundle = bundle;
  exchange.acked_step = step > 0 ? step - 1 : 0;
  if (bundle == 0) {
    exchange.frames = {EncodedFrame({value, value})};
  } else {
    exchange.frames = {EncodedFrame({value, value, value}), EncodedFrame({value})};
  }
  return exchange;
}

// Returns a contribution for an asynchronous shard. It is based on version `base` of the bundle; 0
// if the version is unknown.
inline protocol::ExchangeRequest Push(uint32_t rank, uint64_t step, uint32_t bundle, float value,
                                      uint64_t base) {
  protocol::ExchangeRequest exchange = Contribution(rank, step, bundle, value);
  exchange.base_version = base;
  exchange.rate = 1;
  return exchange;
}

inline protocol::ExchangeRequest SkipOf(uint32_t rank, uint64_t step, uint32_t bundle) {
  protocol::ExchangeRequest exchange = Contribution(rank, step, bundle, 0);
  exchange.frames.clear();
  exchange.skip = true;
  return exchange;
}

inline protocol::ExchangeRequest KeysOf(protocol::ExchangeRequest exchange) {
  exchange.keys_only = true;
  for (const std::string& frame : exchange.frames) {
    exchange.checksums.push_back(compress::FrameChecksum(protocol::FrameBytes(frame)));
  }
  exchange.frames.clear();
  return exchange;
}

// A shard under test. Rank r uses stream r + 1 unless a test uses another stream.
class ShardUnderTest {
 public:
  explicit ShardUnderTest(ShardOptions options) : shard_(*Shard::Create(std::move(options))) {}

  std::vector<ShardEffect> Send(protocol::ExchangeRequest exchange) {
    const StreamId stream = exchange.sender.rank + 1;
    return SendOn(stream, std::move(exchange));
  }
  std::vector<ShardEffect> SendOn(StreamId stream, protocol::ExchangeRequest exchange) {
    return shard_->Handle(stream, std::move(exchange), now_);
  }
  // Sends a request and returns its answer, which must be the first effect.
  protocol::ExchangeReply Ask(protocol::ExchangeRequest exchange) {
    const std::vector<ShardEffect> effects = Send(std::move(exchange));
    Check(!effects.empty() && std::holds_alternative<SendReply>(effects[0]), "an answer came");
    return *std::get<SendReply>(effects[0]).answer;
  }
  // Runs a whole step in which every rank sends `value` plus its rank.
  void RunStep(uint64_t step, float value) {
    for (uint32_t bundle = 0; bundle < shard_->bundles(); ++bundle) {
      for (uint32_t rank = 0; rank < shard_->options().incarnations.size(); ++rank) {
        Send(Contribution(rank, step, bundle, value + static_cast<float>(rank)));
      }
    }
  }
  void Advance(absl::Duration by) { now_ += by; }
  absl::Time now() const { return now_; }
  Shard* operator->() { return shard_.get(); }

 private:
  std::unique_ptr<Shard> shard_;
  absl::Time now_ = absl::UnixEpoch();
};

// Returns the results among the effects, at most one for each stream.
inline std::map<StreamId, protocol::ExchangeReply> ResultsByStream(
    const std::vector<ShardEffect>& effects) {
  std::map<StreamId, protocol::ExchangeReply> results;
  for (const ShardEffect& effect : effects) {
    const auto* reply = std::get_if<SendReply>(&effect);
    if (reply == nullptr || reply->answer->outcome != protocol::Outcome::kResult) continue;
    Check(results.emplace(reply->stream, *reply->answer).second, "one answer to each");
  }
  return results;
}

}  // namespace sluice::server
