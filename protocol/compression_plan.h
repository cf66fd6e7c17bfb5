// CompressionPlan: how tensors are coded from some step on, as it travels and as checkpoints keep
// it. Made by shard 0; docs/protocol.md ("Plans") has its way. Frames say themselves how they are
// coded, so that a receiver needs none.
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
  compress::CodecSpec codec;        // Its compensator is not looked at: a job's never change.
  std::vector<uint32_t> tensors{};  // Ascending.
  std::vector<uint32_t> ranks{};    // Of an uplink's: whose, ascending; empty: all.

  friend bool operator==(const PlanEntry&, const PlanEntry&) = default;
};

// What it names no codec for is coded as the job file says.
struct CompressionPlan {
  uint64_t id = 0;  // From 1, rising; 0 is the job file.
  uint64_t effective_step = 0;
  std::vector<PlanEntry> entries{};
  std::string reason{};  // For a person.
  // Of the optimizer, job/momentum.h; none: the job file's own.
  std::optional<float> momentum{};

  friend bool operator==(const CompressionPlan&, const CompressionPlan&) = default;
};

// Codecs that a job with plans may have, and a plan choose: frames of any of them add up, and no
// end keeps anything for them but the residual.
bool MayChange(const compress::CodecSpec& codec);
// Those of them that send the largest values, at a density that a plan may set.
bool IsSparse(compress::CodecId codec);

// INVALID_ARGUMENT: it cannot be a plan for these tensors, and why. For what came over a network
// or from a disk.
absl::Status CheckPlan(const CompressionPlan& plan, const CompressionSpec& compression,
                       const TensorTable& table);

// By chunk of `chunks`, which says how they are coded by the job file: how they are under the
// plan; null: no plan. Of an uplink `rank` is the sender.
std::vector<compress::CodecSpec> SpecsUnder(const CompressionPlan* plan, Direction direction,
                                            uint32_t rank,
                                            absl::Span<const compress::ChunkConfig> chunks);

// "topk:1%+int4 up and down in 8 tensors": what a plan says, for logs and pages.
std::string Summary(const CompressionPlan& plan);

// The plans that one party of a job knows: the one that holds and those that were announced.
class PlanBook {
 public:
  using Plan = std::shared_ptr<const CompressionPlan>;

  // What a message or a checkpoint brought. INVALID_ARGUMENT: one of them cannot be, and which.
  static absl::StatusOr<PlanBook> Of(absl::Span<const CompressionPlan> plans,
                                     const CompressionSpec& compression, const TensorTable& table);

  // By effective step, ascending. INVALID_ARGUMENT: another plan of this number or step is known,
  // or more are announced than there can be. One that is known, or is over, changes nothing.
  absl::Status Learn(Plan plan);
  // The one that holds in `step`; null: none does, it is as the job file says.
  Plan At(uint64_t step) const;
  // The one that begins with `step`; null: none is known.
  Plan Beginning(uint64_t step) const;
  // Those before the one that holds in `step` are needed no more.
  void ForgetBefore(uint64_t step);
  // The one that was learned last; null: none is known.
  Plan newest() const { return plans_.empty() ? nullptr : plans_.back(); }
  // Nothing but this one is known from here on: where a plan holds once one has it, in no step in
  // particular.
  void Replace(Plan plan) { plans_ = {std::move(plan)}; }
  uint64_t newest_id() const { return plans_.empty() ? 0 : plans_.back()->id; }
  absl::Span<const Plan> plans() const { return plans_; }
  // As Of takes them.
  std::vector<CompressionPlan> Copies() const;

 private:
  std::vector<Plan> plans_;  // Few. Numbers rise with steps.
};

}  // namespace sluice::protocol
