// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/weights_source.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "follow/typed_weights.h"
#include "protocol/compression_spec.h"
#include "server/shard/shard_parameters.h"

namespace sluice::server {
namespace {

using compress::ElementType;

// Returns the published parameters of all chunks in the order of the layout.
std::vector<std::byte> CopyOf(const Shard& shard, ElementType type) {
  const ShardOptions& options = shard.options();
  const ShardParameters& parameters = *shard.parameters();
  uint64_t elements = 0;
  for (const protocol::Bundle& bundle : options.layout.bundles[options.shard]) {
    if (!bundle.buffers) elements += bundle.elements;
  }
  std::vector<std::byte> weights(elements * BytesOf(type));
  absl::Span<std::byte> rest = absl::MakeSpan(weights);
  size_t chunk = 0;
  for (const protocol::Bundle& bundle : options.layout.bundles[options.shard]) {
    for (size_t i = 0; i < bundle.chunks.size(); ++i, ++chunk) {
      if (bundle.buffers) continue;
      const absl::Span<const float> values = parameters.published(chunk);
      const size_t bytes = values.size() * BytesOf(type);
      follow::WriteTyped(type, values, rest.first(bytes));
      rest.remove_prefix(bytes);
    }
  }
  return weights;
}

}  // namespace

WeightsSource::WeightsSource(const job::JobSpec& job, uint32_t shard, follow::WeightsHub* hub)
    : job_name_(job.name),
      shards_(job.shards),
      shard_(shard),
      hub_(hub),
      compression_(job.exchange.compression) {}

void WeightsSource::Begin(const protocol::StartShard& start, const Shard& shard,
                          const Logger& logger) {
  offered_.reset();
  const absl::StatusOr<follow::ModelParts> parts =
      protocol::PartsOfWeights(start.table, shard.options().layout);
  if (!parts.ok()) {
    logger.Warning(parts.status().message());
    return;
  }
  protocol::WeightsDescription description{
      .job = job_name_,
      .job_uid = start.job_uid,
      .table = start.table,
      .layout = start.layout,
      .whole_rows = protocol::WholeRows(compression_, start.table),
      .addresses = std::vector<std::string>(shards_),
      .types = hub_->types()};
  hub_->Begin(start.job_uid, {{shard_, follow::LayoutOfShard(*parts, shard_)}});
  MutexLock lock(&mutex_);
  description_ = std::move(description);
}

void WeightsSource::Offer(const Shard& shard, bool now) {
  const std::optional<uint64_t> step = shard.settled_step();
  if (!step.has_value()) return;
  const follow::WeightsVersion version{.term = shard.options().term, .step = *step};
  if (offered_ == version && !now) return;
  offered_ = version;
  const std::vector<ElementType> types = hub_->Wanted(*step, now);
  if (types.empty()) return;
  std::vector<std::vector<std::byte>> weights;
  shard.options().run_copy([&] {
    for (const ElementType type : types) weights.push_back(CopyOf(shard, type));
  });
  for (size_t i = 0; i < types.size(); ++i) {
    hub_->Offer(shard_, version, types[i], std::move(weights[i]));
  }
}

absl::StatusOr<protocol::WeightsDescription> WeightsSource::Describe() const {
  MutexLock lock(&mutex_);
  if (!description_.has_value()) return absl::UnavailableError("the job has not started yet");
  return *description_;
}

}  // namespace sluice::server
