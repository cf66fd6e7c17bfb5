// SPDX-License-Identifier: Apache-2.0
#include "server/shard/parameter_publisher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::server {
namespace {

// Returns the bytes of the bundle's parameters in codec none. A log never exceeds them, because
// sending the parameters is then cheaper.
uint64_t ExactBytes(const BundleLayout& bundle) {
  return bundle.counts.size() * compress::kFrameHeaderSize + sizeof(float) * bundle.elements;
}

}  // namespace

ParameterPublisher::ParameterPublisher(const ShardOptions* options, ShardLayout* layout,
                                       ShardThreads* threads)
    : options_(*options),
      layout_(*layout),
      threads_(threads),
      downlink_(layout_.downlink, {.seed = options_.exchange.compression.seed,
                                   .sender = compress::Compressor::kShardSender}),
      exact_(compress::MakeCodec({.codec = compress::CodecId::kNone})),
      owed_(threads->lanes()) {
  for (const BundleLayout& bundle : layout_.bundles) states_.emplace_back(ExactBytes(bundle));
}

void ParameterPublisher::Begin(const protocol::ExchangeRequest& exchange) {
  BundleLayout& layout = layout_.bundles[exchange.bundle];
  State& state = states_[exchange.bundle];
  state.begun = true;
  state.parameters = {.rank = exchange.sender.rank,
                      .origin_step = 0,
                      .checksum = protocol::BundleChecksum(exchange.frames)};
  layout.version = 1;
  if (layout.buffers) {
    state.buffers = exchange.frames;
    return;
  }
  for (size_t i = 0; i < layout.counts.size(); ++i) {
    layout_.replica->SetFrom(layout.locals[i], protocol::FrameBytes(exchange.frames[i]));
  }
}

uint64_t ParameterPublisher::Updates(uint32_t bundle) const {
  return layout_.replica->updates(layout_.bundles[bundle].locals.front());
}

uint64_t ParameterPublisher::BaseOf(const protocol::ExchangeRequest& exchange) const {
  return exchange.base_version == 0 ? states_[exchange.bundle].oldest : exchange.base_version;
}

absl::Status ParameterPublisher::Publish(uint32_t bundle) {
  BundleLayout& layout = layout_.bundles[bundle];
  State& state = states_[bundle];
  ShardParameters& replica = *layout_.replica;
  const protocol::StageSpan encoding(options_.stages, protocol::Stage::kEncode);
  const uint64_t to = Updates(bundle) + 1;
  const absl::Status encoded = downlink_.EncodeInLanes(
      threads_->For(protocol::Stage::kEncode), layout.locals, to,
      [&](size_t i, size_t lane) { return replica.Owed(layout.locals[i], &owed_[lane]); },
      &frames_);
  if (!encoded.ok()) return encoded;
  std::vector<std::string> published;
  for (size_t i = 0; i < layout.locals.size(); ++i) {
    downlink_.Observe(layout.locals[i], frames_[i]);
    replica.Publish(layout.locals[i], frames_[i]);
    published.emplace_back(reinterpret_cast<const char*>(frames_[i].data()), frames_[i].size());
  }
  state.log.Add(std::exchange(layout.version, to), std::move(published));
  ++publications_;
  state.published = true;
  // Once all bundles have published, the thresholds have seen as much as in a step of mode sync.
  for (size_t other = 0; other < states_.size(); ++other) {
    if (!states_[other].published && !layout_.bundles[other].buffers) return absl::OkStatus();
  }
  MoveThresholds();
  return absl::OkStatus();
}

void ParameterPublisher::MoveThresholds() {
  downlink_.EndStep(publications_);
  for (State& state : states_) state.published = false;
}

void ParameterPublisher::Bring(protocol::ExchangeReply* answer) {
  const BundleLayout& layout = layout_.bundles[answer->bundle];
  const State& state = states_[answer->bundle];
  answer->version = layout.version;
  if (layout.buffers) {
    if (answer->step > 0) {
      answer->version = answer->base_version;
      return;
    }
    answer->results = state.buffers;
    answer->exact = true;
    return;
  }
  ++brought_in_;
  if (answer->base_version == layout.version) return;
  std::optional<PublicationLog::Steps> steps = state.log.Since(answer->base_version);
  // The rank's version is unknown, or the log has evicted it.
  if (answer->base_version == 0 || !steps.has_value()) {
    answer->results = ExactFrames(answer->bundle);
    answer->exact = true;
    return;
  }
  brought_ += steps->count;
  answer->results = std::move(steps->frames);
}

std::vector<std::string> ParameterPublisher::ExactFrames(uint32_t bundle) const {
  std::vector<std::string> frames;
  for (const uint32_t local : layout_.bundles[bundle].locals) {
    std::vector<std::byte> frame;
    const absl::Status encoded = compress::EncodeFrame(
        *exact_, {.gradient = layout_.replica->published(local), .residual = {}}, &frame);
    Check(encoded.ok(), "published parameters are finite");
    frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  return frames;
}

double ParameterPublisher::TakePublicationsPerResult() {
  const double mean =
      static_cast<double>(brought_) / static_cast<double>(std::max<uint64_t>(brought_in_, 1));
  brought_ = brought_in_ = 0;
  return mean;
}

absl::Status ParameterPublisher::CheckVersions(const std::vector<uint64_t>& versions) const {
  for (uint32_t bundle = 0; bundle < states_.size(); ++bundle) {
    if (layout_.bundles[bundle].buffers) continue;
    if (versions[bundle] >= 1 && versions[bundle] <= Updates(bundle) + 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("bundle ", bundle, " is at version ",
                                                   versions[bundle], " after ", Updates(bundle),
                                                   " updates"));
  }
  return absl::OkStatus();
}

void ParameterPublisher::Resume(const std::vector<uint64_t>& versions) {
  for (size_t bundle = 0; bundle < states_.size(); ++bundle) {
    states_[bundle].begun = true;
    states_[bundle].oldest = versions[bundle];
    layout_.bundles[bundle].version = versions[bundle];
  }
}

void ParameterPublisher::CountIn(ShardStats* stats) const {
  stats->publications = publications_;
  for (size_t bundle = 0; bundle < states_.size(); ++bundle) {
    const State& state = states_[bundle];
    if (!layout_.bundles[bundle].buffers) stats->log_limit += state.log.bytes_max();
    stats->log_bytes += state.log.bytes();
    stats->log_results += state.log.size();
    stats->held_bytes += protocol::TotalBytes(state.buffers);
  }
}

}  // namespace sluice::server
