// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_layout.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/frame.h"
#include "server/shard/request_fence.h"

namespace sluice::server {
namespace {

absl::Status Mismatch(absl::string_view what, uint64_t saved, uint64_t here) {
  return absl::InvalidArgumentError(absl::StrCat(what, " was ", saved, " and is now ", here));
}

// Checks the parts of a snapshot that the restored objects do not check themselves.
absl::Status CheckSnapshot(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                           size_t bundles, size_t chunks) {
  if (snapshot.job_uid != options.job_uid) {
    return absl::InvalidArgumentError(absl::StrCat("it is of run ", absl::Hex(snapshot.job_uid),
                                                   ", this is run ", absl::Hex(options.job_uid)));
  }
  if (snapshot.term > options.term) return Mismatch("the term", snapshot.term, options.term);
  if (snapshot.shard != options.shard) {
    return Mismatch("the shard", snapshot.shard, options.shard);
  }
  if (snapshot.step + 1 != options.first_step) {
    return Mismatch("the step after it", snapshot.step + 1, options.first_step);
  }
  if (snapshot.versions.size() != bundles) {
    return Mismatch("the number of bundles", snapshot.versions.size(), bundles);
  }
  if (snapshot.aggregators.size() != chunks) {
    return Mismatch("the number of chunks", snapshot.aggregators.size(), chunks);
  }
  const size_t parameters = options.rule.has_value() ? chunks : 0;
  if (snapshot.replica.size() != parameters) {
    return Mismatch("the number of chunks whose parameters the shards keep (optimizer.location)",
                    snapshot.replica.size(), parameters);
  }
  return absl::OkStatus();
}

absl::Status OfChunk(size_t chunk, const absl::Status& why) {
  return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk, ": ", why.message()));
}

absl::Status CheckFrame(const ShardOptions& options, const BundleLayout& plan,
                        const protocol::ExchangeRequest& exchange, size_t position, bool repeats) {
  const absl::Span<const std::byte> frame = protocol::FrameBytes(exchange.frames[position]);
  absl::Status valid = exchange.step == 0 || repeats
                           ? compress::ValidateFrame(frame, plan.counts[position])
                           : plan.aggregators[position]->Validate(exchange.sender.rank, frame);
  if (valid.ok() && exchange.step == 0 &&
      compress::ReadFrameHeader(frame)->format != compress::FormatId::kNone) {
    valid = absl::InvalidArgumentError("parameters travel with codec none");
  }
  if (valid.ok()) return valid;
  const uint32_t id = options.layout.bundles[options.shard][exchange.bundle].chunks[position];
  const protocol::Chunk& chunk = options.layout.chunks[id];
  return InvalidRequest(
      exchange,
      absl::StrCat("chunk ", id, " (", options.table[chunk.tensor].name, ", elements ",
                   chunk.offset, " to ", chunk.offset + chunk.count - 1, "): ", valid.message()));
}

}  // namespace

std::vector<size_t> BundleLayout::Begins() const {
  std::vector<size_t> begins;
  std::exclusive_scan(counts.begin(), counts.end(), std::back_inserter(begins), size_t{0});
  return begins;
}

absl::StatusOr<ShardLayout> PlanShard(const ShardOptions& options) {
  const std::vector<compress::ChunkConfig> uplinks = protocol::ChunkConfigs(
      options.exchange.compression, options.table, options.layout, protocol::Direction::kUplink);
  const std::vector<compress::ChunkConfig> downlinks = protocol::ChunkConfigs(
      options.exchange.compression, options.table, options.layout, protocol::Direction::kDownlink);
  std::optional<UpdateRule> rule;
  if (options.rule.has_value()) {
    absl::StatusOr<UpdateRule> made = UpdateRule::Create(*options.rule);
    if (!made.ok()) return made.status();
    rule = *std::move(made);
  }
  ShardLayout out;
  std::vector<uint32_t> parameters;  // By chunk: the number of elements for the replica.
  uint64_t aggregator_bytes = 0;
  for (const protocol::Bundle& bundle : options.layout.bundles[options.shard]) {
    BundleLayout plan;
    plan.buffers = bundle.buffers;
    plan.fragment = bundle.fragment;
    plan.fragments = options.layout.fragments;
    for (const uint32_t id : bundle.chunks) {
      const protocol::Chunk& chunk = options.layout.chunks[id];
      plan.counts.push_back(chunk.count);
      plan.locals.push_back(static_cast<uint32_t>(out.downlink.size()));
      plan.elements += chunk.count;
      parameters.push_back(plan.buffers ? 0 : chunk.count);
      out.downlink.push_back(downlinks[id]);
      // With an update rule, the difference between parameters and replica is the only residual.
      if (rule.has_value() && !plan.buffers) {
        out.downlink.back().spec.compensator = {.id = compress::CompensatorId::kNone};
      }
      out.aggregators.push_back(compress::MakeAggregator(
          uplinks[id], static_cast<uint32_t>(options.incarnations.size())));
      plan.aggregators.push_back(out.aggregators.back().get());
      aggregator_bytes += out.aggregators.back()->state_bytes();
    }
    out.elements += plan.elements;
    if (!plan.buffers) out.trained += plan.elements;
    out.bundles.push_back(std::move(plan));
  }
  out.reserved_bytes = 2 * sizeof(float) * out.elements + aggregator_bytes;
  if (rule.has_value()) {
    out.reserved_bytes += ShardParameters::BytesPerElement(*rule) * out.trained;
    out.replica.emplace(*std::move(rule), parameters);
    if (options.rule_momentum) {
      out.replica->SetMomentum(static_cast<float>(*options.rule_momentum));
    }
  }
  return out;
}

uint32_t ParameterRank(const ShardOptions& options) {
  if (!options.exchange.elastic()) return 0;
  const auto first = std::find_if(options.incarnations.begin(), options.incarnations.end(),
                                  [](uint64_t incarnation) { return incarnation != 0; });
  return static_cast<uint32_t>(first - options.incarnations.begin());
}

uint64_t StepAfter(const ShardOptions& options, uint64_t step) {
  return step == 0 ? options.first_step : step + 1;
}

uint64_t WindowBytes(const ShardOptions& options) {
  return options.incarnations.size() * options.window_bytes;
}

absl::Status CheckMemory(const ShardOptions& options, const ShardLayout& plan) {
  const uint64_t windows = WindowBytes(options);
  if (plan.reserved_bytes + windows <= options.max_memory) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "shard ", options.shard, " needs ", plan.reserved_bytes + windows,
      " bytes: ", plan.reserved_bytes, " for ", plan.elements, " elements and ", windows,
      " for the windows of ", options.incarnations.size(), " ranks; server.max_memory is ",
      options.max_memory, " (raise it, lower server.window_bytes, or use more shards)"));
}

absl::Status CheckPayload(const ShardOptions& options, const BundleLayout& plan,
                          const protocol::ExchangeRequest& exchange, bool repeats) {
  if (exchange.skip) {
    if (!exchange.frames.empty()) return InvalidRequest(exchange, "a skip carries frames");
    const bool gives_parameters =
        exchange.sender.rank == ParameterRank(options) && !plan.counts.empty();
    if (exchange.step == 0 && gives_parameters) {
      return InvalidRequest(exchange, absl::StrCat("rank ", exchange.sender.rank,
                                                   " must send its parameters in step 0"));
    }
    return absl::OkStatus();
  }
  if (exchange.step == 0 && exchange.sender.rank != ParameterRank(options)) {
    return InvalidRequest(exchange, absl::StrCat("only rank ", ParameterRank(options),
                                                 " sends parameters in step 0; the others skip"));
  }
  if (!plan.buffers && !plan.Exchanges(exchange.step)) {
    return InvalidRequest(exchange, absl::StrCat("carries frames of fragment ", plan.fragment,
                                                 ", which this step does not exchange"));
  }
  const bool by_tokens = options.exchange.merge.weights == job::MergeWeights::kTokens;
  const protocol::Work& work = exchange.work;
  if (by_tokens && exchange.step > 0 && (work.samples == 0 || work.steps == 0)) {
    return InvalidRequest(
        exchange, absl::StrCat("is made from ", work.samples, " samples in ", work.steps,
                               " steps; with merge_weights: tokens, a shard needs both numbers"));
  }
  const size_t wanted = plan.counts.size();
  if (exchange.frames.size() != wanted) {
    return InvalidRequest(exchange,
                          absl::StrCat(exchange.frames.size(), " frames for ", wanted,
                                       " chunks; worker and shard cut the tensors differently"));
  }
  for (size_t i = 0; i < wanted; ++i) {
    const absl::Status valid = CheckFrame(options, plan, exchange, i, repeats);
    if (!valid.ok()) return valid;
  }
  return absl::OkStatus();
}

std::shared_ptr<protocol::ShardSnapshot> SaveParts(
    const ShardOptions& options, const compress::Compressor& downlink,
    absl::Span<const std::unique_ptr<compress::Aggregator>> aggregators,
    const std::optional<ShardParameters>& replica) {
  auto snapshot = std::make_shared<protocol::ShardSnapshot>();
  snapshot->job_uid = options.job_uid;
  snapshot->term = options.term;
  snapshot->shard = options.shard;
  const auto copy = [&] {
    snapshot->downlink = downlink.Save();
    for (const std::unique_ptr<compress::Aggregator>& aggregator : aggregators) {
      snapshot->aggregators.push_back(compress::SaveFields(aggregator->State()));
    }
    for (size_t i = 0; replica.has_value() && i < aggregators.size(); ++i) {
      snapshot->replica.push_back(replica->Save(i));
    }
  };
  if (options.run_copy) {
    options.run_copy(copy);
  } else {
    copy();
  }
  return snapshot;
}

absl::Status RestoreParts(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                          size_t bundles, compress::Compressor* downlink,
                          absl::Span<const std::unique_ptr<compress::Aggregator>> aggregators,
                          std::optional<ShardParameters>* replica) {
  absl::Status fits = CheckSnapshot(snapshot, options, bundles, aggregators.size());
  if (fits.ok()) fits = downlink->Restore(snapshot.downlink);
  if (!fits.ok()) return fits;
  const bool other_ranks =
      options.restored_ranks != 0 && options.restored_ranks != options.incarnations.size();
  for (size_t i = 0; i < aggregators.size(); ++i) {
    const std::vector<compress::StateField> fields = aggregators[i]->State();
    const compress::SavedState& saved = snapshot.aggregators[i];
    fits = compress::RestoreFields(other_ranks ? compress::WithoutSenders(saved, fields) : saved,
                                   fields);
    if (!fits.ok()) return OfChunk(i, fits);
  }
  for (size_t i = 0; replica->has_value() && i < aggregators.size(); ++i) {
    fits = (*replica)->Restore(i, snapshot.replica[i]);
    if (!fits.ok()) return OfChunk(i, fits);
  }
  return absl::OkStatus();
}

absl::Status CannotGoOn(const ShardOptions& options, const protocol::ShardSnapshot& snapshot,
                        const absl::Status& why) {
  return absl::InvalidArgumentError(absl::StrCat("shard ", options.shard,
                                                 " cannot continue from the checkpoint after step ",
                                                 snapshot.step, ": ", why.message()));
}

}  // namespace sluice::server
