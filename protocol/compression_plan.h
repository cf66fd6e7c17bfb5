// SPDX-License-Identifier: Apache-2.0
// CompressionPlan: the codecs of tensors from a given step on, in the form that messages and
// checkpoints carry. Shard 0 makes the plans; see docs/protocol.md ("Plans"). Each frame names its
// own codec, so a receiver can decode it without a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compress/codec_spec.h"
#include "protocol/compression_spec.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

struct PlanEntry {
  Direction direction = Direction::kUplink;
  // The codec's compensator is ignored, because compensators never change during a job.
  compress::CodecSpec codec;
  std::vector<uint32_t> tensors{};  // In ascending order.
  // Only for the uplink: the ranks to which the entry applies, in ascending order. Empty means all
  // ranks.
  std::vector<uint32_t> ranks{};

  friend bool operator==(const PlanEntry&, const PlanEntry&) = default;
};

// A plan. Tensors without an entry keep the codecs of the job file.
struct CompressionPlan {
  uint64_t id = 0;  // Ascending from 1; 0 stands for the job file.
  uint64_t effective_step = 0;
  std::vector<PlanEntry> entries{};
  std::string reason{};  // Human-readable explanation of the plan.
  // Momentum of the optimizer (job/momentum.h). Without a value, the job file's momentum applies.
  std::optional<float> momentum{};

  friend bool operator==(const CompressionPlan&, const CompressionPlan&) = default;
};

// Returns true if plans may replace or choose the codec. Frames of such codecs can be summed even
// if the codecs differ. The only state that senders and receivers keep for these codecs is the
// residual.
bool MayChange(const compress::CodecSpec& codec);
// Returns true for codecs that MayChange allows and that send only the largest values, at a density
// that a plan may set.
bool IsSparse(compress::CodecId codec);

// Fails with INVALID_ARGUMENT if the plan is malformed or does not fit these tensors; the message
// gives the reason. Use this check for plans from a network or a disk.
absl::Status CheckPlan(const CompressionPlan& plan, const CompressionSpec& compression,
                       const TensorTable& table);

// Returns the codec of each chunk under the plan. `chunks` contains the job file's codecs, which
// apply if the plan is null. For an uplink, `rank` is the sender.
std::vector<compress::CodecSpec> SpecsUnder(const CompressionPlan* plan, Direction direction,
                                            uint32_t rank,
                                            absl::Span<const compress::ChunkConfig> chunks);

// Describes a plan for logs and pages, for example as "topk:1%+int4 up and down in 8 tensors".
std::string Summary(const CompressionPlan& plan);

// The plans that one process of a job knows: the plan in force and the announced plans.
class PlanHistory {
 public:
  using Plan = std::shared_ptr<const CompressionPlan>;

  // Builds a history from the plans in a message or a checkpoint. Fails with INVALID_ARGUMENT if a
  // plan is invalid; the message names the plan.
  static absl::StatusOr<PlanHistory> Of(absl::Span<const CompressionPlan> plans,
                                        const CompressionSpec& compression,
                                        const TensorTable& table);

  // Adds a plan to the history, which is ordered by effective step. Fails with INVALID_ARGUMENT if
  // a different plan with the same number or step is known, or if there would be too many announced
  // plans. A plan that is already known or superseded changes nothing.
  absl::Status Learn(Plan plan);
  // Returns the plan in force in `step`. Null means that the job file applies.
  Plan At(uint64_t step) const;
  // Returns the plan whose first step is `step`, or null if none is known.
  Plan Beginning(uint64_t step) const;
  // Drops all plans that precede the plan in force in `step`.
  void ForgetBefore(uint64_t step);
  // Returns the plan that was added last, or null if none is known.
  Plan newest() const { return plans_.empty() ? nullptr : plans_.back(); }
  // Replaces all plans with this one. Used in jobs where a plan takes effect on arrival rather than
  // in a particular step.
  void Replace(Plan plan) { plans_ = {std::move(plan)}; }
  uint64_t newest_id() const { return plans_.empty() ? 0 : plans_.back()->id; }
  absl::Span<const Plan> plans() const { return plans_; }
  // Returns the plans in the form that Of() accepts.
  std::vector<CompressionPlan> Copies() const;

 private:
  std::vector<Plan> plans_;  // A short list. Plan ids ascend with effective steps.
};

}  // namespace sluice::protocol
