// SPDX-License-Identifier: Apache-2.0
#include "server/shard/bundle_work.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/frame.h"
#include "server/shard/request_fence.h"

namespace sluice::server {
namespace {

Notice MeanLeftOut(const BundleWork& work, absl::string_view what, absl::string_view why) {
  return {.text = absl::StrCat("step ", work.step, ", bundle ", work.bundle, ": ", what, " (", why,
                               ")"),
          .fields = {.event = "mean_left_out", .step = work.step}};
}

// Returns true if the bundle holds gradients or weight changes of the ranks, one by one.
bool HoldsContributions(const BundleWork& work) {
  return work.given == nullptr && work.step > 0 && work.layout->Exchanges(work.step);
}

// Every contribution is finite, but the sum is not. All count as skipped, so that all ranks agree.
void LeaveOut(const BundleWork& work, absl::string_view why, BundleResult* result) {
  for (protocol::Included& included : result->included) included.skipped = true;
  result->n = 0;
  result->left_out = true;
  result->effects.push_back(MeanLeftOut(work, "the mean overflowed and was left out", why));
}

}  // namespace

BundleCoder::BundleCoder(const ShardOptions* options,
                         const std::vector<compress::ChunkConfig>& downlink,
                         std::vector<std::unique_ptr<compress::Aggregator>> aggregators,
                         std::optional<ShardParameters> replica)
    : options_(*options),
      threads_(std::make_unique<ShardThreads>(options_.threads, options_.stages)),
      aggregators_(std::move(aggregators)),
      downlink_(downlink, {.seed = options_.exchange.compression.seed,
                           .sender = compress::Compressor::kShardSender,
                           .owes_lossless = true}),
      replica_(std::move(replica)),
      outer_gain_(MakeOuterGain(options_.exchange.mode, options_.rule, aggregators_.size())),
      owed_(options_.threads) {
  if (options_.exchange.guard.on()) {
    guard_.emplace(options_.exchange.guard, options_.exchange.compression.seed,
                   options_.incarnations.size(), options_.layout.bundles[options_.shard],
                   options_.layout.fragments);
  }
  if (!options_.exchange.merge.plain())
    merge_.emplace(options_.exchange.merge, options_.layout.fragments);
}

void BundleCoder::EndStep(uint64_t step, std::vector<ShardEffect>* out) {
  downlink_.EndStep(step);
  if (!guard_.has_value()) return;
  for (Notice& notice : guard_->EndStep(step)) out->push_back(std::move(notice));
}

void BundleCoder::AddFigures(ShardStats* stats) const {
  if (guard_.has_value()) stats->agreement = guard_->figures();
  if (merge_.has_value()) stats->merge_shares = merge_->shares();
  if (!outer_gain_.has_value()) return;
  stats->outer_correlation = outer_gain_->correlation();
  stats->outer_gain = outer_gain_->gain();
}

void BundleCoder::JudgeContributions(const BundleWork& work) {
  if (!guard_.has_value() || !HoldsContributions(work)) return;
  const protocol::StageSpan summing(options_.stages, protocol::Stage::kSum);
  const std::vector<float> factors = guard_->Judge(work.step, work.bundle, work.layout->counts,
                                                   work.open->Contributions(work.step));
  if (!factors.empty()) work.open->Scale(factors);
}

bool BundleCoder::IsMerged(const BundleWork& work) const {
  return merge_.has_value() && HoldsContributions(work);
}

Parallel* BundleCoder::ThreadsFor(const BundleWork& work, protocol::Stage stage) {
  return IsMerged(work) ? nullptr : threads_->For(stage);
}

absl::Span<const float> BundleCoder::MeanOf(const BundleWork& work, size_t chunk, size_t lane) {
  const protocol::StageSpan summing(options_.stages, protocol::Stage::kSum);
  if (!IsMerged(work)) return work.open->MeanOf(chunk, lane);
  return merge_->MeanOf(work.step, work.open->Contributions(work.step), chunk,
                        work.layout->counts[chunk]);
}

BundleResult BundleCoder::Run(const BundleWork& work) {
  BundleResult result;
  JudgeContributions(work);
  result.included = work.open->IncludedRanks(work.step);
  result.n = work.given == nullptr ? work.open->n() : work.given->n;
  result.exact = work.given != nullptr && work.given->exact;
  if (work.step == 0 && work.given == nullptr) {
    MoveParameters(work, &result);
  } else if (result.n == 0) {
    return result;
  } else if (work.given == nullptr && replica_.has_value() && !work.layout->buffers) {
    Update(work, &result);
  } else {
    EncodeMean(work, &result);
  }
  return result;
}

std::shared_ptr<const BundleSum> BundleCoder::SumUp(const BundleWork& work) {
  const BundleLayout& plan = *work.layout;
  auto sum = std::make_shared<BundleSum>();
  sum->term = options_.term;
  sum->step = work.step;
  sum->bundle = work.bundle;
  sum->n = work.open->n();
  if (work.step == 0) {
    sum->sum.resize(plan.elements);
    absl::Span<float> rest = absl::MakeSpan(sum->sum);
    const std::vector<std::string> frames = work.open->MoveFrames(ParameterRank(options_));
    Check(frames.size() == plan.counts.size(), "rank 0 gave all its parameters");
    for (size_t i = 0; i < frames.size(); ++i) {
      compress::AddValidFrames(protocol::FrameBytes(frames[i]), rest.first(plan.counts[i]));
      rest.remove_prefix(plan.counts[i]);
    }
  } else if (sum->n > 0) {
    sum->rate = work.open->rate();
    sum->sum.resize(plan.elements);
    const std::vector<size_t> begins = plan.Begins();
    const protocol::StageSpan summing(options_.stages, protocol::Stage::kSum);
    threads_->For(protocol::Stage::kSum)->For(plan.counts.size(), [&](size_t i, size_t lane) {
      const absl::Span<const float> of_chunk = work.open->SumOf(i, lane);
      std::copy(of_chunk.begin(), of_chunk.end(), sum->sum.data() + begins[i]);
    });
  }
  return sum;
}

// The initial parameters are forwarded as frames, so every bit is kept, even a zero's sign.
void BundleCoder::MoveParameters(const BundleWork& work, BundleResult* result) {
  const BundleLayout& plan = *work.layout;
  result->frames = work.open->MoveFrames(ParameterRank(options_));
  Check(result->frames.size() == plan.counts.size(), "rank 0 gave all its parameters");
  if (!replica_.has_value() || plan.buffers) return;
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    replica_->SetFrom(plan.locals[i], protocol::FrameBytes(result->frames[i]));
  }
}

void BundleCoder::EncodeMean(const BundleWork& work, BundleResult* result) {
  const BundleLayout& plan = *work.layout;
  const protocol::StageSpan encoding(options_.stages, protocol::Stage::kEncode);
  std::vector<size_t> begins;
  if (work.given != nullptr) {
    Check(work.given->mean.size() == plan.elements, "what is published is of the whole bundle");
    begins = plan.Begins();
  }
  const auto mean_of = [&](size_t chunk, size_t lane) -> absl::Span<const float> {
    if (work.given == nullptr) return MeanOf(work, chunk, lane);
    return absl::MakeSpan(work.given->mean).subspan(begins[chunk], plan.counts[chunk]);
  };
  const absl::Status encoded = downlink_.EncodeInLanes(ThreadsFor(work, protocol::Stage::kEncode),
                                                       plan.locals, work.step, mean_of, &frames_);
  if (encoded.ok()) {
    MoveFrames(work, result);
  } else {
    LeaveOut(work, encoded.message(), result);
  }
}

std::vector<bool> BundleCoder::CollectMeans(const BundleWork& work, absl::Status* all_finite) {
  const BundleLayout& plan = *work.layout;
  const std::vector<size_t> begins = plan.Begins();
  means_.resize(plan.elements);
  std::vector<absl::Status> finite(plan.counts.size());
  const auto collect = [&](size_t i, size_t lane) {
    const absl::Span<const float> mean = MeanOf(work, i, lane);
    finite[i] = downlink_.Check(plan.locals[i], mean);
    std::copy(mean.begin(), mean.end(), means_.data() + begins[i]);
  };
  if (Parallel* const threads = ThreadsFor(work, protocol::Stage::kSum); threads != nullptr) {
    threads->For(plan.counts.size(), collect);
  } else {
    for (size_t i = 0; i < plan.counts.size(); ++i) collect(i, 0);
  }
  std::vector<bool> updated;
  for (const absl::Status& of_chunk : finite) {
    updated.push_back(of_chunk.ok());
    all_finite->Update(of_chunk);
  }
  return updated;
}

// A chunk whose mean is not finite is not updated. The other chunks of its bundle are updated,
// because the shard cannot keep their means for later and workers do not resend them.
void BundleCoder::Update(const BundleWork& work, BundleResult* result) {
  const BundleLayout& plan = *work.layout;
  absl::Status all_finite;
  const std::vector<bool> updated = CollectMeans(work, &all_finite);
  const auto updates = std::count(updated.begin(), updated.end(), true);
  if (updates == 0) {
    LeaveOut(work, all_finite.message(), result);
    return;
  }
  if (!all_finite.ok()) {
    const size_t overflowed = updated.size() - static_cast<size_t>(updates);
    result->effects.push_back(
        MeanLeftOut(work,
                    absl::StrCat("the means of ", overflowed, " of ", updated.size(),
                                 " chunks overflowed and were left out"),
                    all_finite.message()));
  }
  result->rate = work.open->rate();
  const std::vector<size_t> begins = plan.Begins();
  const auto mean_of = [&](size_t i) {
    return absl::MakeConstSpan(means_).subspan(begins[i], plan.counts[i]);
  };
  for (size_t i = 0; outer_gain_.has_value() && i < plan.counts.size(); ++i) {
    if (updated[i]) outer_gain_->Add(plan.locals[i], result->rate, mean_of(i));
  }
  const protocol::StageSpan encoding(options_.stages, protocol::Stage::kEncode);
  const auto owed_of = [&](size_t i, size_t lane) {
    const protocol::StageSpan updating(options_.stages, protocol::Stage::kSum);
    if (updated[i]) replica_->Update(plan.locals[i], result->rate, mean_of(i));
    return replica_->Owed(plan.locals[i], &owed_[lane]);
  };
  const absl::Status encoded = downlink_.EncodeInLanes(threads_->For(protocol::Stage::kEncode),
                                                       plan.locals, work.step, owed_of, &frames_);
  if (!encoded.ok()) {
    LeaveOut(work, encoded.message(), result);
    result->effects.push_back(Diverged(options_, absl::StrCat("step ", work.step), encoded));
    return;
  }
  MoveFrames(work, result);
  for (size_t i = 0; i < plan.locals.size(); ++i) {
    replica_->Publish(plan.locals[i], protocol::FrameBytes(result->frames[i]));
  }
}

void BundleCoder::MoveFrames(const BundleWork& work, BundleResult* result) {
  const BundleLayout& plan = *work.layout;
  result->frames.reserve(frames_.size());
  for (size_t i = 0; i < frames_.size(); ++i) {
    std::vector<std::byte>& frame = frames_[i];
    downlink_.Observe(plan.locals[i], frame);
    plan.aggregators[i]->AppendShared(&frame);
    result->frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
}

std::shared_ptr<protocol::ShardSnapshot> BundleCoder::Save() const {
  return SaveParts(options_, downlink_, aggregators_, replica_);
}

absl::Status BundleCoder::Restore(const protocol::ShardSnapshot& snapshot, size_t bundles) {
  return RestoreParts(snapshot, options_, bundles, &downlink_, aggregators_, &replica_);
}

double BundleCoder::ResidualEnergy() const {
  return downlink_.ResidualEnergy() + (replica_.has_value() ? replica_->OwedEnergy() : 0);
}

absl::Span<const float> BundleCoder::DownlinkResidual(const BundleLayout& layout,
                                                      size_t position) const {
  const uint32_t chunk = layout.locals[position];
  if (replica_.has_value() && !layout.buffers) return replica_->Owed(chunk);
  return downlink_.residual(chunk);
}

}  // namespace sluice::server
