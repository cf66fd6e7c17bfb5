// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/relay_reference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/frame.h"
#include "tests/sim/sim_data.h"

namespace sluice {
namespace {

std::vector<float> DecodeRelayReference(const std::string& frame, size_t count) {
  std::vector<float> values(count);
  const absl::Status decoded =
      compress::DecodeAddFrames(protocol::FrameBytes(frame), absl::MakeSpan(values));
  Check(decoded.ok(), decoded.message());
  return values;
}

}  // namespace

PartReference::PartReference(const SurvivalOptions& options, const protocol::TensorTable& table,
                             const protocol::Layout& layout,
                             const std::vector<std::vector<float>>& parameters)
    : options_(options), table_(table), layout_(layout), parameters_(parameters) {
  const protocol::CompressionSpec& compression = options.compression;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    encoders_.emplace_back(table, layout, compression, rank);
  }
  std::vector<compress::ChunkConfig> downlink =
      protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kDownlink);
  // A rack's shards have no rule.
  if (options.rule.has_value() && options.rack_of == 0) {
    std::vector<uint32_t> counts;
    for (const protocol::Chunk& chunk : layout.chunks) counts.push_back(chunk.count);
    for (compress::ChunkConfig& chunk : downlink)
      chunk.spec.compensator = {.id = compress::CompensatorId::kNone};
    replica_.emplace(*server::UpdateRule::Create(*options.rule), counts);
  }
  downlink_base_ = downlink;
  for (uint32_t shard = 0; shard < options.shards; ++shard) {
    downlinks_.emplace_back(
        downlink, compress::Compressor::Options{.seed = compression.seed,
                                                .sender = compress::Compressor::kShardSender});
  }
  for (const compress::ChunkConfig& chunk :
       protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kUplink)) {
    aggregators_.push_back(compress::MakeAggregator(chunk, options.ranks));
  }
}

// Plans never change a rack's codecs.
void PartReference::BeginStep(uint64_t step) {
  if (options_.rack_of > 0) return;
  auto plan = PlanOfSchedule(options_, table_, step, plan_.get());
  if (plan == nullptr) return;
  plan_ = std::move(plan);
  for (uint32_t shard = 0; shard < downlinks_.size(); ++shard) {
    RecodeReferenceDownlink(plan_.get(), downlink_base_, layout_, shard, &downlinks_[shard]);
  }
}

worker::EncodedBundle PartReference::Encode(const BundleKey& key, uint32_t rank,
                                            const Given& given) {
  worker::EncodeTask task;
  task.step = key.step;
  task.shard = key.shard;
  task.bundle = key.bundle;
  task.chunks = layout_.bundles[key.shard][key.bundle].chunks;
  task.nothing = given.weight == 0;
  task.last_of_step = IsLastEncoded(layout_, key.step, key.shard, key.bundle);
  task.plan = plan_;
  for (const std::vector<float>& values : given.values) {
    task.gradients.push_back(absl::MakeConstSpan(values));
  }
  worker::EncodedBundle encoded = encoders_[rank].Encode(task);
  if (key.step == 0 || given.weight == 0 || !Balances(options_.compression.uplink)) return encoded;
  for (size_t i = 0; i < task.chunks.size(); ++i) {
    const uint32_t chunk = task.chunks[i];
    const std::vector<float>& values = given.values[i];
    const bool finite =
        std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    // The bundle was skipped because a value was not finite. The residual has absorbed the finite
    // chunks.
    if (encoded.skipped && (!finite || UplinkResidual(rank, chunk).empty())) continue;
    Balance& balance = uplink_balances_[{rank, chunk}];
    balance.Want(values);
    if (!encoded.skipped) balance.Got(DecodeRelayReference(encoded.frames[i], values.size()));
  }
  return encoded;
}

std::pair<PartReference::Values, uint32_t> PartReference::Sum(const BundleKey& key,
                                                              const std::vector<Given>& given) {
  const std::vector<uint32_t>& chunks = layout_.bundles[key.shard][key.bundle].chunks;
  ReferenceBundle& closed = bundles_[key];
  Values sums;
  for (const uint32_t id : chunks) sums.emplace_back(layout_.chunks[id].count);
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    // A worker without data encodes nothing. A relay encodes an empty contribution, because it must
    // account for published results.
    worker::EncodedBundle sent;
    sent.skipped = true;
    if (!given[rank].values.empty()) sent = Encode(key, rank, given[rank]);
    closed.included.push_back({.rank = rank,
                               .origin_step = key.step,
                               .checksum = protocol::BundleChecksum(sent.frames),
                               .skipped = sent.skipped,
                               .weight = sent.skipped ? 1 : given[rank].weight});
    if (sent.skipped) continue;
    closed.n += given[rank].weight;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const absl::Span<const std::byte> frame = protocol::FrameBytes(sent.frames[i]);
      if (key.step == 0) {
        sums[i] = DecodeRelayReference(sent.frames[i], sums[i].size());
        continue;
      }
      compress::Aggregator& aggregator = *aggregators_[chunks[i]];
      Check(aggregator.Validate(rank, frame).ok(), "what was encoded is valid");
      aggregator.Add({{.sender = rank, .frame = frame}}, absl::MakeSpan(sums[i]));
    }
  }
  return {std::move(sums), closed.n};
}

PartReference::Values PartReference::Close(const BundleKey& key, uint32_t n, Values sum) {
  const std::vector<uint32_t>& chunks = layout_.bundles[key.shard][key.bundle].chunks;
  if (key.step == 0) {  // Rank 0 sent the parameters.
    bundles_[key].result_checksum = bundles_[key].included[0].checksum;
    for (size_t i = 0; i < chunks.size() && replica_.has_value(); ++i) {
      replica_->Set(chunks[i], sum[i]);
    }
    return sum;
  }
  for (size_t i = 0; i < chunks.size() && n > 0; ++i) {
    aggregators_[chunks[i]]->Close(n, absl::MakeSpan(sum[i]));
    if (!replica_.has_value()) continue;
    replica_->Update(chunks[i], SimRate(key.step), sum[i]);
    const absl::Span<const float> owed = replica_->Owed(chunks[i]);
    sum[i].assign(owed.begin(), owed.end());
  }
  if (replica_.has_value() && n > 0) bundles_[key].rate = SimRate(key.step);
  return Publish(key, n, sum);
}

PartReference::Values PartReference::Publish(const BundleKey& key, uint32_t n, const Values& mean) {
  const std::vector<uint32_t>& chunks = layout_.bundles[key.shard][key.bundle].chunks;
  ReferenceBundle& closed = bundles_[key];
  closed.n = n;
  Values decoded;
  for (const std::vector<float>& values : mean) decoded.emplace_back(values.size());
  if (n == 0) return decoded;
  std::vector<std::string> frames;
  std::vector<std::vector<std::byte>> encoded;
  compress::Compressor& downlink = downlinks_[key.shard];
  const auto mean_of = [&](size_t i) { return absl::MakeConstSpan(mean[i]); };
  Check(downlink.EncodeEach(chunks, key.step, mean_of, &encoded).ok(), "means are finite");
  for (size_t i = 0; i < chunks.size(); ++i) {
    frames.emplace_back(reinterpret_cast<const char*>(encoded[i].data()), encoded[i].size());
    decoded[i] = DecodeRelayReference(frames[i], mean[i].size());
    if (replica_.has_value()) replica_->Publish(chunks[i], protocol::FrameBytes(frames[i]));
    if (replica_.has_value() || key.step == 0 || !Balances(options_.compression.downlink)) continue;
    downlink_balances_[chunks[i]].Want(mean[i]);
    downlink_balances_[chunks[i]].Got(decoded[i]);
  }
  closed.result_checksum = protocol::BundleChecksum(frames);
  return decoded;
}

void PartReference::CheckBalances(const std::string& whose,
                                  std::vector<std::string>* violations) const {
  const auto check = [&](const std::string& what, const Balance& balance,
                         absl::Span<const float> residual) {
    const std::string off = balance.WhatIsOff(residual, options_.steps);
    if (off.empty()) return;
    violations->push_back(
        absl::StrCat("reference: ", whose, what, " and residual do not add up: ", off));
  };
  for (const auto& [at, balance] : uplink_balances_) {
    check(absl::StrCat(", rank ", at.first, ", chunk ", at.second, ": sent"), balance,
          UplinkResidual(at.first, at.second));
  }
  for (const auto& [chunk, balance] : downlink_balances_) {
    check(absl::StrCat(", chunk ", chunk, ": published"), balance, DownlinkResidual(chunk));
  }
}

RelayReference::RelayReference(const SurvivalOptions& above,
                               const std::vector<SurvivalOptions>& racks)
    : above_options_(above),
      rack_options_(racks),
      table_(SimTable()),
      layout_(SimLayout(above, table_)),
      parameters_(SimValues(racks[0], table_, /*rank=*/0, /*step=*/0)) {
  for (const std::vector<float>& tensor : parameters_) momentum_.emplace_back(tensor.size());
  above_ = std::make_unique<PartReference>(above_options_, table_, layout_, parameters_);
  for (const SurvivalOptions& rack : rack_options_) {
    racks_.push_back(std::make_unique<PartReference>(rack, table_, layout_, parameters_));
  }
  if (IsAsync(above)) return;  // Such a job has no single course.
  for (uint64_t step = 0; step <= above.steps; ++step) RunStep(step);
  above_->CheckBalances("above", &violations_);
  for (uint32_t relay = 0; relay < racks_.size(); ++relay) {
    racks_[relay]->CheckBalances(absl::StrCat("rack ", relay), &violations_);
  }
}

void RelayReference::RunStep(uint64_t step) {
  above_->BeginStep(step);
  values_.clear();
  for (const SurvivalOptions& rack : rack_options_) {
    auto& of_rack = values_.emplace_back();
    for (uint32_t rank = 0; rank < rack.ranks; ++rank) {
      of_rack.push_back(SimValues(rack, table_, rank, step));
    }
  }
  means_.clear();
  for (const protocol::TensorInfo& tensor : table_) means_.emplace_back(tensor.elements());
  for (uint32_t shard = 0; shard < layout_.bundles.size(); ++shard) {
    for (uint32_t bundle = 0; bundle < layout_.bundles[shard].size(); ++bundle) {
      const BundleKey key{step, shard, bundle};
      std::vector<PartReference::Given> handed_on(racks_.size());
      for (uint32_t relay = 0; relay < racks_.size(); ++relay) {
        auto [sum, n] = racks_[relay]->Sum(key, GivenIn(relay, key));
        // Only relay 0 passes on parameters.
        const bool encoded = IsEncoded(layout_, step, layout_.bundles[shard][bundle]);
        if (encoded && (step > 0 || relay == 0))
          handed_on[relay] = {.values = std::move(sum), .weight = n};
      }
      auto [sum, n] = above_->Sum(key, handed_on);
      const PartReference::Values mean = above_->Close(key, n, std::move(sum));
      for (const auto& rack : racks_) rack->Publish(key, n, mean);
      TakeMean(key, mean);
    }
    if (step == 0) continue;
    above_->EndStep(step, shard);
    for (const auto& rack : racks_) rack->EndStep(step, shard);
  }
  for (size_t tensor = 0; tensor < table_.size(); ++tensor) {
    const std::vector<float>& result = means_[tensor];
    if (step == 0 || !above_options_.rule.has_value()) {
      ApplyMean(step, result, absl::MakeSpan(parameters_[tensor]),
                absl::MakeSpan(momentum_[tensor]));
      continue;
    }
    for (size_t i = 0; i < result.size(); ++i) parameters_[tensor][i] += result[i];
  }
}

std::vector<PartReference::Given> RelayReference::GivenIn(uint32_t relay,
                                                          const BundleKey& key) const {
  const SurvivalOptions& rack = rack_options_[relay];
  std::vector<PartReference::Given> given(rack.ranks);
  const protocol::Bundle& bundle = layout_.bundles[key.shard][key.bundle];
  const std::vector<uint32_t>& chunks = bundle.chunks;
  const bool encoded = IsEncoded(layout_, key.step, bundle);
  for (uint32_t rank = 0; rank < rack.ranks; ++rank) {
    if (!encoded || (key.step == 0 ? rank != 0 : SkipsStep(rack, rank, key.step))) continue;
    given[rank].weight = 1;
    for (const uint32_t id : chunks) {
      const protocol::Chunk& chunk = layout_.chunks[id];
      const std::vector<float>& tensor = values_[relay][rank][chunk.tensor];
      given[rank].values.emplace_back(tensor.begin() + chunk.offset,
                                      tensor.begin() + chunk.offset + chunk.count);
    }
  }
  return given;
}

void RelayReference::TakeMean(const BundleKey& key, const PartReference::Values& mean) {
  const std::vector<uint32_t>& chunks = layout_.bundles[key.shard][key.bundle].chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const protocol::Chunk& chunk = layout_.chunks[chunks[i]];
    std::copy(mean[i].begin(), mean[i].end(), means_[chunk.tensor].begin() + chunk.offset);
  }
}

}  // namespace sluice
