// PlanLog: how a job is compressed and what last changed about it, for people and pages. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "job/control_spec.h"
#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "server/control/plan_bytes.h"

namespace sluice::server {

// A plan as a person reads it.
struct PlanChange {
  uint64_t id = 0;
  uint64_t effective_step = 0;
  std::string what;    // As Summary has it.
  std::string reason;  // As its policy gave it.
  std::optional<PlanBytes> bytes{};
};

struct JobCodecs {
  std::string uplink;  // As the job file has them.
  std::string downlink;
  std::string policy;               // control.policy
  std::string momentum;             // As MomentumNote has it.
  std::vector<PlanChange> plans{};  // The newest, by step; none in a job that makes none.
  uint64_t plans_made = 0;          // Since this coordinator started, those of its start included.
};

class PlanLog {
 public:
  static constexpr size_t kPlansMax = 8;  // The oldest go.

  PlanLog() = default;
  PlanLog(const protocol::CompressionSpec& compression, const job::ControlSpec& control,
          std::string momentum_note = {});

  // In the order in which they are made. After a rollback plans are made again: they take the
  // place of the earlier ones of their number and above.
  void Add(const protocol::CompressionPlan& plan, std::optional<PlanBytes> bytes = std::nullopt);
  const JobCodecs& codecs() const { return codecs_; }

 private:
  JobCodecs codecs_;
};

// The one of `plans` that holds in `step`; null: none of them.
const PlanChange* PlanIn(absl::Span<const PlanChange> plans, uint64_t step);

}  // namespace sluice::server
