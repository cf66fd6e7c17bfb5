// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "compress/feedback/residual_merge.h"
#include "compress/frame.h"
#include "tests/sim/sim_data.h"

namespace sluice {
namespace {

constexpr float kRate = 0.1f;
constexpr float kMomentum = 0.5f;

std::vector<float> DecodeReference(const std::string& frame, size_t count) {
  std::vector<float> values(count);
  const absl::Status decoded =
      compress::DecodeAddFrames(protocol::FrameBytes(frame), absl::MakeSpan(values));
  Check(decoded.ok(), decoded.message());
  return values;
}

bool IsDense(const protocol::CompressionSpec& compression) {
  return compression.uplink.codec == compress::CodecId::kNone &&
         compression.downlink.codec == compress::CodecId::kNone && compression.min_elements == 0;
}

}  // namespace

std::shared_ptr<const protocol::CompressionPlan> PlanOfSchedule(
    const SurvivalOptions& options, const protocol::TensorTable& table, uint64_t step,
    const protocol::CompressionPlan* last) {
  if (options.control.policy != job::PolicyKind::kSchedule || step == 0) return nullptr;
  const job::ScheduleSpec& schedule = options.control.schedule;
  const std::optional<double> density = job::DensityAt(schedule, step - 1);
  if (step > 1 && density == job::DensityAt(schedule, step - 2)) return nullptr;
  auto plan = std::make_shared<protocol::CompressionPlan>();
  plan->id = last == nullptr ? 1 : last->id + 1;
  plan->effective_step = step;
  for (const protocol::Direction direction :
       {protocol::Direction::kUplink, protocol::Direction::kDownlink}) {
    for (uint32_t tensor = 0; tensor < table.size(); ++tensor) {
      compress::CodecSpec codec =
          protocol::SpecForTensor(options.compression, table[tensor], direction);
      if (codec.codec != compress::CodecId::kTopK && codec.codec != compress::CodecId::kTopKExact)
        continue;
      if (!density) codec = {.codec = compress::CodecId::kFp16};
      if (density) codec.level = *density;
      plan->entries.push_back({.direction = direction, .codec = codec, .tensors = {tensor}});
    }
  }
  return plan;
}

// The groups of this shard share a threshold and exclude the chunks of other shards.
void RecodeReferenceDownlink(const protocol::CompressionPlan* plan,
                             absl::Span<const compress::ChunkConfig> base,
                             const protocol::Layout& layout, uint32_t shard,
                             compress::Compressor* downlink) {
  std::vector<compress::CodecSpec> specs =
      protocol::SpecsUnder(plan, protocol::Direction::kDownlink, 0, base);
  for (size_t id = 0; id < specs.size(); ++id) {
    if (layout.chunks[id].shard != shard) specs[id].codec = compress::CodecId::kNone;
  }
  Check(downlink->Recode(specs).ok(), "codecs may change");
}

void ApplyMean(uint64_t step, absl::Span<const float> mean, absl::Span<float> parameters,
               absl::Span<float> momentum) {
  for (size_t i = 0; i < mean.size(); ++i) {
    if (step == 0) {
      parameters[i] = mean[i];
      continue;
    }
    momentum[i] = kMomentum * momentum[i] + mean[i];
    parameters[i] -= kRate * momentum[i];
  }
}

uint32_t HashParameters(const std::vector<std::vector<float>>& parameters) {
  uint32_t hash = 0;
  for (const std::vector<float>& tensor : parameters) {
    hash = ExtendCrc32c(
        hash, {reinterpret_cast<const std::byte*>(tensor.data()), tensor.size() * sizeof(float)});
  }
  return hash;
}

Reference::Reference(const SurvivalOptions& options, const protocol::TensorTable& table,
                     const protocol::Layout& layout, RankChanges changes)
    : options_(options),
      table_(table),
      layout_(layout),
      changes_(std::move(changes)),
      ranks_(options.ranks),
      next_step_(HasStepZero(options) ? 0 : 1) {
  const protocol::CompressionSpec& compression = options.compression;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    encoders_.emplace_back(table, layout, compression, rank);
  }
  std::vector<compress::ChunkConfig> downlink =
      protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kDownlink);
  if (options.rule.has_value()) {
    std::vector<uint32_t> counts;
    for (const protocol::Chunk& chunk : layout.chunks) counts.push_back(chunk.count);
    // The difference between parameters and replica already records what an encoding leaves out, so
    // the downlink keeps no residual.
    for (compress::ChunkConfig& chunk : downlink)
      chunk.spec.compensator = {.id = compress::CompensatorId::kNone};
    replica_.emplace(*server::UpdateRule::Create(*options.rule), counts);
  }
  downlink_base_ = downlink;
  for (uint32_t shard = 0; shard < options.shards; ++shard) {
    downlinks_.emplace_back(
        downlink, compress::Compressor::Options{.seed = compression.seed,
                                                .sender = compress::Compressor::kShardSender});
    if (options.control.makes_plans()) RecodeDownlink(shard);
  }
  MakeAggregators();
  // Such a job has no single course; QuorumLedger or AsyncChecks checks it.
  if (GoesManyWays(options) || IsAsync(options)) return;
  parameters_ = SimValues(options, table, /*rank=*/0, /*step=*/0);
  for (const std::vector<float>& tensor : parameters_) momentum_.emplace_back(tensor.size());
  if (options.control.measures()) return;  // PlannedReference supplies the plans.
  RunTo(options.steps, {});
  CheckAll();
}

void Reference::RunTo(uint64_t step, const Plans& plans) {
  for (; next_step_ <= step; ++next_step_) {
    const auto begins = plans.find(next_step_);
    if (begins != plans.end()) Adopt(begins->second);
    ChangeRanksIfDue();
    RunStep(next_step_);
  }
  // The job may also resume after its last step.
  if (next_step_ > options_.steps) ChangeRanksIfDue();
}

void Reference::ChangeRanksIfDue() {
  if (next_step_ <= 1 || changed_before_ == next_step_) return;
  const auto change = changes_.find(next_step_ - 1);
  if (change == changes_.end()) return;
  changed_before_ = next_step_;
  ChangeRanks(change->second);
}

void Reference::MakeAggregators() {
  aggregators_.clear();
  for (const compress::ChunkConfig& chunk : protocol::ChunkConfigs(
           options_.compression, table_, layout_, protocol::Direction::kUplink)) {
    aggregators_.push_back(compress::MakeAggregator(chunk, ranks_));
  }
}

void Reference::ChangeRanks(uint32_t ranks) {
  std::vector<std::vector<std::vector<float>>> before(layout_.chunks.size());
  std::vector<compress::SavedCompressor> saved;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    for (const auto& [from, frames] : published_) {
      const auto& [to, shard, bundle] = from;
      if (to == rank) encoders_[rank].Observe(layout_.bundles[shard][bundle].chunks, frames);
    }
    for (uint32_t id = 0; id < before.size(); ++id) {
      const absl::Span<const float> residual = UplinkResidual(rank, id);
      before[id].emplace_back(residual.begin(), residual.end());
    }
    saved.push_back(encoders_[rank].Save());
  }
  published_.clear();
  encoders_.clear();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    compress::ResidualMerge mean;
    for (uint32_t from = 0; from < ranks_; ++from) {
      Check(mean.Add(saved[from], from == rank % ranks_).ok(), "all ranks have the same chunks");
    }
    encoders_.emplace_back(table_, layout_, options_.compression, rank);
    Check(encoders_[rank].Restore(*mean.Take(), options_.control.makes_plans()).ok(),
          "what was saved is restored");
  }
  std::vector<compress::SavedState> sums;
  for (const auto& aggregator : aggregators_) {
    sums.push_back(compress::SaveFields(aggregator->State()));
  }
  ranks_ = ranks;
  MakeAggregators();
  for (size_t id = 0; id < aggregators_.size(); ++id) {
    const std::vector<compress::StateField> fields = aggregators_[id]->State();
    Check(compress::RestoreFields(compress::WithoutSenders(sums[id], fields), fields).ok(),
          "what was saved is restored");
  }
  CheckMerged(before);
}

// Checks that every rank begins with the mean of the residuals, and begins its totals with it.
void Reference::CheckMerged(const std::vector<std::vector<std::vector<float>>>& before) {
  uplink_totals_.clear();
  for (uint32_t id = 0; id < before.size(); ++id) {
    Balance mean;
    for (const std::vector<float>& residual : before[id]) {
      if (!residual.empty()) mean.Want(residual);
    }
    for (double& x : mean.wanted) x /= static_cast<double>(before[id].size());
    for (uint32_t rank = 0; rank < ranks_ && !mean.wanted.empty(); ++rank) {
      const Balance& totals = uplink_totals_[{rank, id}] = mean;
      CheckBalance(absl::StrCat("rank ", rank, ", chunk ", id, ": resumed"), totals,
                   UplinkResidual(rank, id));
    }
  }
}

void Reference::CheckAll() {
  CheckBalances();
  CheckReplica();
}

void Reference::Adopt(std::shared_ptr<const protocol::CompressionPlan> plan) {
  plan_ = std::move(plan);
  for (uint32_t shard = 0; shard < downlinks_.size(); ++shard) RecodeDownlink(shard);
}

void Reference::RecodeDownlink(uint32_t shard) {
  RecodeReferenceDownlink(plan_.get(), downlink_base_, layout_, shard, &downlinks_[shard]);
}

void Reference::RunStep(uint64_t step) {
  auto plan = PlanOfSchedule(options_, table_, step, plan_.get());
  if (plan != nullptr) Adopt(std::move(plan));
  values_.clear();
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    values_.push_back(SimValues(options_, table_, rank, step));
  }
  means_.clear();
  for (const protocol::TensorInfo& tensor : table_) means_.emplace_back(tensor.elements());
  for (uint32_t shard = 0; shard < layout_.bundles.size(); ++shard) {
    for (uint32_t bundle = 0; bundle < layout_.bundles[shard].size(); ++bundle) {
      const std::vector<worker::EncodedBundle> sent = EncodeBundles(step, shard, bundle);
      const Frames result = Close(step, shard, bundle, sent);
      const std::vector<uint32_t>& chunks = layout_.bundles[shard][bundle].chunks;
      for (size_t i = 0; i < result.size(); ++i) TakeResult(step, chunks[i], result[i], sent);
      for (uint32_t rank = 0; rank < ranks_ && step > 0 && !result.empty(); ++rank) {
        published_[{rank, shard, bundle}] = result;
      }
    }
    if (step > 0) downlinks_[shard].EndStep(step);
  }
  if (replica_.has_value() && step > 0) return;
  for (size_t tensor = 0; tensor < table_.size(); ++tensor) {
    ApplyMean(step, means_[tensor], absl::MakeSpan(parameters_[tensor]),
              absl::MakeSpan(momentum_[tensor]));
  }
}

void Reference::TakeResult(uint64_t step, uint32_t id, const std::string& frame,
                           const std::vector<worker::EncodedBundle>& sent) {
  const protocol::Chunk& chunk = layout_.chunks[id];
  const std::vector<float> decoded = DecodeReference(frame, chunk.count);
  std::copy(decoded.begin(), decoded.end(), means_[chunk.tensor].begin() + chunk.offset);
  if (step == 0) {
    if (replica_.has_value()) replica_->Set(id, decoded);
    return;
  }
  downlink_totals_[id].Got(decoded);
  if (!replica_.has_value()) return CheckPlainSum(step, id, sent, decoded);
  float* const parameters = parameters_[chunk.tensor].data() + chunk.offset;
  for (size_t j = 0; j < decoded.size(); ++j) parameters[j] += decoded[j];
}

std::vector<worker::EncodedBundle> Reference::EncodeBundles(uint64_t step, uint32_t shard,
                                                            uint32_t bundle) {
  std::vector<worker::EncodedBundle> sent(ranks_);
  const bool balances = Balances(options_.compression.uplink);
  const std::vector<uint32_t>& chunks = layout_.bundles[shard][bundle].chunks;
  const bool encoded = IsEncoded(layout_, step, layout_.bundles[shard][bundle]);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    sent[rank].skipped = true;
    if (!encoded || (step == 0 ? rank != 0 : SkipsStep(options_, rank, step))) continue;
    worker::EncodeTask task;
    task.step = step;
    task.shard = shard;
    task.bundle = bundle;
    task.chunks = chunks;
    task.last_of_step = IsLastEncoded(layout_, step, shard, bundle);
    for (const uint32_t id : chunks) {
      const protocol::Chunk& chunk = layout_.chunks[id];
      task.gradients.push_back(
          absl::MakeConstSpan(values_[rank][chunk.tensor]).subspan(chunk.offset, chunk.count));
    }
    Frames& published = published_[{rank, shard, bundle}];
    task.published = published;
    task.plan = plan_;
    sent[rank] = encoders_[rank].Encode(task);
    published.clear();
    for (size_t i = 0; i < chunks.size() && step > 0 && balances; ++i) {
      AddToTotals(rank, chunks[i], task.gradients[i].floats(),
                  sent[rank].skipped ? nullptr : &sent[rank].frames[i]);
    }
  }
  return sent;
}

// `frame` is null if the bundle was skipped because a gradient was not finite. In that case the
// residual has absorbed the finite gradients.
void Reference::AddToTotals(uint32_t rank, uint32_t chunk, absl::Span<const float> gradient,
                            const std::string* frame) {
  const bool finite =
      std::all_of(gradient.begin(), gradient.end(), [](float x) { return std::isfinite(x); });
  if (frame == nullptr && (!finite || UplinkResidual(rank, chunk).empty())) return;
  Balance& totals = uplink_totals_[{rank, chunk}];
  totals.Want(gradient);
  if (frame != nullptr) totals.Got(DecodeReference(*frame, gradient.size()));
}

Reference::Frames Reference::Close(uint64_t step, uint32_t shard, uint32_t bundle,
                                   const std::vector<worker::EncodedBundle>& sent) {
  const std::vector<uint32_t>& chunks = layout_.bundles[shard][bundle].chunks;
  ReferenceBundle& closed = bundles_[{step, shard, bundle}];
  std::vector<std::vector<float>> sums;
  for (const uint32_t id : chunks) sums.emplace_back(layout_.chunks[id].count);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    closed.included.push_back({.rank = rank,
                               .origin_step = step,
                               .checksum = protocol::BundleChecksum(sent[rank].frames),
                               .skipped = sent[rank].skipped});
    if (sent[rank].skipped) continue;
    ++closed.n;
    for (size_t i = 0; i < chunks.size() && step > 0; ++i) {
      compress::Aggregator& aggregator = *aggregators_[chunks[i]];
      const absl::Span<const std::byte> frame = protocol::FrameBytes(sent[rank].frames[i]);
      Check(aggregator.Validate(rank, frame).ok(), "what was encoded is valid");
      aggregator.Add({{.sender = rank, .frame = frame}}, absl::MakeSpan(sums[i]));
    }
  }
  Frames frames;
  if (step == 0) {
    frames = sent[0].frames;
  } else if (closed.n > 0) {
    if (replica_.has_value()) closed.rate = SimRate(step);
    frames = EncodeMean(step, chunks, closed.n, &sums);
  }
  closed.result_checksum = protocol::BundleChecksum(frames);
  return frames;
}

Reference::Frames Reference::EncodeMean(uint64_t step, const std::vector<uint32_t>& chunks,
                                        uint32_t n, std::vector<std::vector<float>>* sums) {
  for (size_t i = 0; i < chunks.size(); ++i) {
    std::vector<float>& sum = (*sums)[i];
    aggregators_[chunks[i]]->Close(n, absl::MakeSpan(sum));
    if (replica_.has_value()) {
      const absl::Span<const float> owed = Update(step, chunks[i], sum);
      sum.assign(owed.begin(), owed.end());
    } else {
      downlink_totals_[chunks[i]].Want(sum);
    }
  }
  std::vector<std::vector<std::byte>> encoded;
  compress::Compressor& downlink = downlinks_[layout_.chunks[chunks[0]].shard];
  const auto mean_of = [&](size_t i) { return absl::MakeConstSpan((*sums)[i]); };
  Check(downlink.EncodeEach(chunks, step, mean_of, &encoded).ok(), "means are finite");
  Frames frames;
  for (size_t i = 0; i < chunks.size(); ++i) {
    downlink.Observe(chunks[i], encoded[i]);
    aggregators_[chunks[i]]->AppendShared(&encoded[i]);
    frames.emplace_back(reinterpret_cast<const char*>(encoded[i].data()), encoded[i].size());
    if (replica_.has_value()) replica_->Publish(chunks[i], protocol::FrameBytes(frames.back()));
  }
  return frames;
}

absl::Span<const float> Reference::Update(uint64_t step, uint32_t chunk,
                                          absl::Span<const float> mean) {
  const absl::Span<const float> parameters = replica_->parameters(chunk);
  Balance& totals = downlink_totals_[chunk];
  totals.wanted.resize(mean.size());
  for (size_t j = 0; j < mean.size(); ++j) totals.wanted[j] -= parameters[j];
  replica_->Update(chunk, SimRate(step), mean);
  for (size_t j = 0; j < mean.size(); ++j) {
    totals.wanted[j] += parameters[j];
    totals.magnitude = std::max(totals.magnitude, std::abs(double{parameters[j]}));
  }
  return replica_->Owed(chunk);
}

// Without compression, the mean is the plain sum in rank order, divided once.
void Reference::CheckPlainSum(uint64_t step, uint32_t chunk_id,
                              const std::vector<worker::EncodedBundle>& sent,
                              const std::vector<float>& mean) {
  if (!IsDense(options_.compression) || plan_ != nullptr) return;
  const protocol::Chunk& chunk = layout_.chunks[chunk_id];
  std::vector<float> sum(chunk.count);
  uint32_t n = 0;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (sent[rank].skipped) continue;
    ++n;
    const float* const values = values_[rank][chunk.tensor].data() + chunk.offset;
    for (uint32_t i = 0; i < chunk.count; ++i) sum[i] += values[i];
  }
  for (float& x : sum) x /= static_cast<float>(n);
  if (std::memcmp(sum.data(), mean.data(), sum.size() * sizeof(float)) == 0) return;
  violations_.push_back(absl::StrCat("reference: step ", step, ", chunk ", chunk_id,
                                     ": not the plain sum in rank order"));
}

void Reference::CheckBalances() {
  if (Balances(options_.compression.uplink)) {
    for (const auto& [at, totals] : uplink_totals_) {
      CheckBalance(absl::StrCat("rank ", at.first, ", chunk ", at.second, ": sent"), totals,
                   UplinkResidual(at.first, at.second));
    }
  }
  if (!replica_.has_value() && !Balances(options_.compression.downlink)) return;
  for (const auto& [chunk, totals] : downlink_totals_) {
    CheckBalance(absl::StrCat("shard, chunk ", chunk, ": published"), totals,
                 DownlinkResidual(chunk));
  }
}

// Checks that the workers' parameters equal the shards' record of them.
void Reference::CheckReplica() {
  for (uint32_t id = 0; id < layout_.chunks.size() && replica_.has_value(); ++id) {
    const protocol::Chunk& chunk = layout_.chunks[id];
    const auto has =
        absl::MakeConstSpan(parameters_[chunk.tensor]).subspan(chunk.offset, chunk.count);
    if (has == replica_->published(id)) continue;
    violations_.push_back(
        absl::StrCat("reference: chunk ", id, " of the workers is not that of ", "the shards"));
  }
}

void Reference::CheckBalance(const std::string& whose, const Balance& totals,
                             absl::Span<const float> residual) {
  const std::string off = totals.WhatIsOff(residual, options_.steps);
  if (off.empty()) return;
  violations_.push_back(absl::StrCat("reference: ", whose, " and residual do not add up: ", off));
}

}  // namespace sluice
