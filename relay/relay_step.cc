// SPDX-License-Identifier: Apache-2.0
#include "relay/relay_step.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice::relay {
namespace {

// Shard 0 names a checkpoint two steps ahead. A session that replays steps may know a later one.
constexpr uint64_t kNamedAhead = 2;

}  // namespace

RelayStep::RelayStep(protocol::TensorTable table, protocol::Layout layout, uint64_t first_step,
                     bool parameters_agree, bool keeps_parameters)
    : table_(std::move(table)),
      layout_(std::move(layout)),
      trained_(protocol::TrainedTensors(table_)),
      first_step_(first_step),
      step_(parameters_agree ? first_step : 0),
      keeps_parameters_(keeps_parameters),
      chunks_(table_.size()) {
  for (const protocol::TensorInfo& tensor : table_) values_.emplace_back(tensor.elements());
  if (keeps_parameters_) parameters_ = values_;
  for (const protocol::Chunk& chunk : layout_.chunks) ++chunks_[chunk.tensor];
  for (const std::vector<protocol::Bundle>& of_shard : layout_.bundles) {
    taken_.emplace_back(of_shard.size());
    bundles_ += of_shard.size();
  }
  chunks_missing_ = chunks_;
  missing_ = bundles_;
}

std::vector<uint32_t> RelayStep::Take(uint32_t shard, const server::BundleSum& sum) {
  Check(sum.step == step_ && shard < taken_.size() && sum.bundle < taken_[shard].size(),
        "a rack's shards hand on bundles of the open step");
  Check(!taken_[shard][sum.bundle], "a bundle is handed on once");
  taken_[shard][sum.bundle] = true;
  --missing_;
  const protocol::Bundle& bundle = layout_.bundles[shard][sum.bundle];
  Check(sum.n == 0 || sum.sum.size() == bundle.elements, "a sum is of the whole bundle");
  std::vector<uint32_t> ready;
  absl::Span<const float> rest = sum.sum;
  for (const uint32_t id : bundle.chunks) {
    const protocol::Chunk& chunk = layout_.chunks[id];
    const auto to = values_[chunk.tensor].begin() + static_cast<std::ptrdiff_t>(chunk.offset);
    if (sum.n == 0) {
      std::fill_n(to, chunk.count, 0.0f);
    } else {
      std::copy_n(rest.begin(), chunk.count, to);
      rest.remove_prefix(chunk.count);
    }
    if (--chunks_missing_[chunk.tensor] == 0) ready.push_back(chunk.tensor);
  }
  std::sort(ready.begin(), ready.end());
  return ready;
}

bool RelayStep::IsTensorNeeded(uint32_t tensor, bool buffers_due) const {
  return std::any_of(layout_.chunks.begin(), layout_.chunks.end(), [&](const protocol::Chunk& of) {
    return of.tensor == tensor && IsNeeded(of.shard, of.bundle, buffers_due);
  });
}

std::vector<absl::Span<float>> RelayStep::all_values() {
  std::vector<absl::Span<float>> all;
  for (std::vector<float>& values : values_) all.push_back(absl::MakeSpan(values));
  return all;
}

std::vector<server::Publication> RelayStep::Publications(
    uint32_t shard, const std::function<uint32_t(uint32_t)>& contributions,
    const Announcements& announced) const {
  const uint64_t checkpoint = announced.checkpoint_step;
  const bool is_near = checkpoint > step_ && checkpoint <= step_ + kNamedAhead;
  const std::vector<std::vector<float>>& results = keeps_parameters_ ? parameters_ : values_;
  std::vector<server::Publication> publications;
  for (uint32_t bundle = 0; bundle < layout_.bundles[shard].size(); ++bundle) {
    const protocol::Bundle& of = layout_.bundles[shard][bundle];
    server::Publication& publication = publications.emplace_back();
    publication.step = step_;
    publication.bundle = bundle;
    publication.n = contributions(bundle);
    publication.checkpoint_step = is_near ? checkpoint : 0;
    if (shard == 0 && bundle == 0) publication.plan = announced.plan;
    publication.exact = keeps_parameters_ && !of.buffers && !of.chunks.empty();
    if (publication.exact) publication.n = std::max(publication.n, 1u);
    if (publication.n == 0) continue;
    publication.mean.reserve(of.elements);
    for (const uint32_t id : of.chunks) {
      const protocol::Chunk& chunk = layout_.chunks[id];
      const auto from = results[chunk.tensor].begin() + static_cast<std::ptrdiff_t>(chunk.offset);
      publication.mean.insert(publication.mean.end(), from, from + chunk.count);
    }
  }
  return publications;
}

void RelayStep::Next() {
  step_ = step_ == 0 ? first_step_ : step_ + 1;
  chunks_missing_ = chunks_;
  missing_ = bundles_;
  for (std::vector<bool>& of_shard : taken_) of_shard.assign(of_shard.size(), false);
}

worker::Progress ProgressOf(const server::JobStatus& rack) {
  worker::Progress progress;
  uint32_t told = 0;
  for (const server::MemberStatus& member : rack.members) {
    const protocol::MemberProgress& of = member.progress;
    if (!member.joined || of.total_steps == 0) continue;
    progress.step = told == 0 ? of.step : std::min(progress.step, of.step);
    progress.epoch = told == 0 ? of.epoch : std::min(progress.epoch, of.epoch);
    progress.total_steps = std::max(progress.total_steps, of.total_steps);
    progress.loss += of.loss;
    progress.samples_per_second += of.samples_per_second;
    progress.step_ms_p50 = std::max(progress.step_ms_p50, of.step_ms_p50);
    progress.validation_metric = std::max(progress.validation_metric, of.validation_metric);
    if (of.seconds_left.has_value()) {
      progress.seconds_left = std::max(progress.seconds_left.value_or(0), *of.seconds_left);
    }
    ++told;
  }
  if (told > 0) progress.loss /= told;
  return progress;
}

}  // namespace sluice::relay
