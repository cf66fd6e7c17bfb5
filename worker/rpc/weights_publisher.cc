// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/weights_publisher.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "follow/typed_weights.h"
#include "protocol/weights.h"

namespace sluice::worker {
namespace {

using compress::ElementType;

constexpr absl::Duration kFinishSlice = absl::Milliseconds(10);

// Returns the weights of one shard in the order of its pieces.
std::vector<std::byte> CopyOf(absl::Span<const absl::Span<const float>> parameters,
                              const std::vector<follow::TensorPiece>& pieces, ElementType type) {
  uint64_t elements = 0;
  for (const follow::TensorPiece& piece : pieces) elements += piece.count;
  std::vector<std::byte> weights(elements * BytesOf(type));
  absl::Span<std::byte> rest = absl::MakeSpan(weights);
  for (const follow::TensorPiece& piece : pieces) {
    const size_t bytes = piece.count * BytesOf(type);
    follow::WriteTyped(type, parameters[piece.tensor].subspan(piece.offset, piece.count),
                       rest.first(bytes));
    rest.remove_prefix(bytes);
  }
  return weights;
}

}  // namespace

std::unique_ptr<WeightsPublisher> WeightsPublisher::Create(const RemoteSessionOptions& options,
                                                           const protocol::TensorTable& table,
                                                           const Membership& membership) {
  if (!options.followers.enabled() || options.shards_update || options.rank != 0 ||
      options.rack_of > 0) {
    return nullptr;
  }
  absl::StatusOr<follow::ModelParts> parts = protocol::PartsOfWeights(table, membership.layout);
  if (!parts.ok()) {
    options.logger.Warning(parts.status().message());
    return nullptr;
  }
  return std::unique_ptr<WeightsPublisher>(
      new WeightsPublisher(options, membership, *std::move(parts)));
}

WeightsPublisher::WeightsPublisher(const RemoteSessionOptions& options,
                                   const Membership& membership, follow::ModelParts parts)
    : clock_(options.clock),
      term_(membership.sender.term),
      every_(options.followers.every),
      parts_(std::move(parts)),
      hub_({.types = options.followers.types,
            .followers_max =
                static_cast<uint32_t>(options.followers.types.size() * membership.shards.size()),
            .every = options.followers.every},
           options.logger) {
  std::map<uint32_t, follow::TensorLayout> layouts;
  for (uint32_t i = 0; i < membership.shards.size(); ++i) {
    if (!parts_.shards[i].empty()) layouts[i] = follow::LayoutOfShard(parts_, i);
  }
  hub_.Begin(membership.sender.job_uid, layouts);
  for (const auto& [shard, layout] : layouts) {
    for (const ElementType type : options.followers.types) {
      shard_of_.push_back(shard);
      uploads_.push_back(std::make_unique<WeightsUpload>(
          WeightsUpload::Options{.sender = membership.sender,
                                 .shard = shard,
                                 .seat = membership.shards[shard],
                                 .type = type,
                                 .transport = options.transport,
                                 .backoff_min = options.backoff_min,
                                 .backoff_max = options.backoff_max},
          &hub_, options.clock, options.logger));
    }
  }
}

bool WeightsPublisher::Wants(uint64_t step, bool is_last) const {
  return (is_last || step % every_ == 0) &&
         !std::all_of(uploads_.begin(), uploads_.end(),
                      [](const auto& upload) { return upload->drained(); });
}

void WeightsPublisher::Offer(uint64_t step, absl::Span<const absl::Span<const float>> parameters,
                             bool is_last) {
  for (const ElementType type : hub_.Wanted(step, is_last)) {
    const auto [offered, is_new] = offered_.try_emplace(type, step);
    if (!is_new && offered->second == step) continue;
    offered->second = step;
    for (uint32_t i = 0; i < parts_.shards.size(); ++i) {
      if (parts_.shards[i].empty()) continue;
      hub_.Offer(i, {.term = term_, .step = step}, type,
                 CopyOf(parameters, parts_.shards[i], type));
    }
  }
}

void WeightsPublisher::GoTo(const std::vector<protocol::ShardPlace>& places) {
  for (const protocol::ShardPlace& place : places) {
    for (size_t i = 0; i < uploads_.size(); ++i) {
      if (shard_of_[i] != place.shard) continue;
      uploads_[i]->GoTo({.address = place.address, .server_incarnation = place.server_incarnation});
    }
  }
}

void WeightsPublisher::Finish(absl::Duration limit) {
  hub_.Finish(absl::OkStatus());
  const absl::Time until = clock_->Now() + limit;
  while (clock_->Now() < until &&
         !std::all_of(uploads_.begin(), uploads_.end(),
                      [](const auto& upload) { return upload->drained(); })) {
    absl::SleepFor(kFinishSlice);
  }
}

void WeightsPublisher::Cancel() {
  for (const std::unique_ptr<WeightsUpload>& upload : uploads_) upload->Cancel();
}

}  // namespace sluice::worker
