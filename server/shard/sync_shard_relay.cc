// Implements a relay's shard, which forwards sums to the parent job and closes bundles with the
// parent's results.
#include <memory>
#include <utility>

#include "base/check.h"
#include "compress/frame.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {

// Arrivals are kept until the bundle closes, so that the shard can distinguish repeats from
// requests with different bytes.
void SyncShard::ForwardSum(uint32_t bundle, Effects* out) {
  OpenBundle& open = *open_.bundles[bundle];
  const BundleLayout& plan = bundles_[bundle];
  auto sum = std::make_shared<BundleSum>();
  sum->term = options_.term;
  sum->step = open_step_;
  sum->bundle = bundle;
  sum->n = open.n();
  handed_[bundle] = true;
  stats_.held_bytes -= open.held_bytes();
  if (open_step_ == 0) {
    sum->sum.resize(plan.elements);
    absl::Span<float> rest = absl::MakeSpan(sum->sum);
    const std::vector<std::string> frames = open.MoveFrames(ParameterRank(options_));
    Check(frames.size() == plan.counts.size(), "rank 0 gave all its parameters");
    for (size_t i = 0; i < frames.size(); ++i) {
      compress::AddValidFrames(protocol::FrameBytes(frames[i]), rest.first(plan.counts[i]));
      rest.remove_prefix(plan.counts[i]);
    }
  } else if (sum->n > 0) {
    sum->sum.reserve(plan.elements);
    for (size_t i = 0; i < plan.counts.size(); ++i) {
      const protocol::StageSpan summing(options_.stages, protocol::Stage::kSum);
      const absl::Span<const float> of_chunk = open.SumOf(i);
      sum->sum.insert(sum->sum.end(), of_chunk.begin(), of_chunk.end());
    }
  }
  stats_.held_bytes += open.held_bytes();
  out->push_back(BundleSummed{std::move(sum)});
}

std::vector<ShardEffect> SyncShard::Publish(const Publication& publication) {
  Effects out;
  const uint32_t bundle = publication.bundle;
  const bool awaited = !gate_.ended() && publication.step == open_step_ &&
                       bundle < bundles_.size() && handed_[bundle] && !closed_[bundle];
  if (!awaited) return out;
  checkpoints_.Learn(publication.checkpoint_step, open_step_, &out);
  const BundleLayout& plan = bundles_[bundle];
  const std::unique_ptr<OpenBundle> open = RemoveOpen(bundle);
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->record.included = open->IncludedRanks(open_step_);
  answer->record.n = publication.n;
  if (publication.n > 0) {
    Check(publication.mean.size() == plan.elements, "what is published is of the whole bundle");
    const protocol::StageSpan encoding(options_.stages, protocol::Stage::kEncode);
    absl::Span<const float> rest = publication.mean;
    const auto mean_of = [&](size_t i) {
      const absl::Span<const float> mean = rest.first(plan.counts[i]);
      rest.remove_prefix(plan.counts[i]);
      return mean;
    };
    const absl::Status encoded = downlink_.EncodeEach(plan.locals, open_step_, mean_of, &frames_);
    if (encoded.ok()) {
      MoveFrames(bundle, answer.get());
    } else {
      LeaveOut(bundle, encoded.message(), answer.get(), &out);
    }
  }
  Conclude(bundle, *open, answer, &out);
  AdvanceSteps(&out);
  return out;
}

}  // namespace sluice::server
