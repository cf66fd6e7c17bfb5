// SPDX-License-Identifier: Apache-2.0
// PlanLog: the current compression of a job and its last changes, in readable form. Pure.
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

// A plan in readable form.
struct PlanChange {
  uint64_t id = 0;
  uint64_t effective_step = 0;
  std::string what;    // The text that Summary returns.
  std::string reason;  // The reason from the policy that made the plan.
  std::optional<PlanBytes> bytes{};
};

struct JobCodecs {
  std::string uplink;  // As in the job file.
  std::string downlink;
  std::string policy;               // The value of control.policy.
  std::string momentum;             // The text that MomentumNote returns.
  std::vector<PlanChange> plans{};  // The newest plans, by step; empty if the job makes no plans.
  // Plans made since this coordinator started, including its first plans.
  uint64_t plans_made = 0;
};

class PlanLog {
 public:
  static constexpr size_t kPlansMax = 8;  // When the log is full, it drops the oldest plan.

  PlanLog() = default;
  PlanLog(const protocol::CompressionSpec& compression, const job::ControlSpec& control,
          std::string momentum_note = {});

  // Adds plans in the order in which they are made. A plan replaces earlier plans with the same or
  // a higher id, because plans are made again after a rollback.
  void Add(const protocol::CompressionPlan& plan, std::optional<PlanBytes> bytes = std::nullopt);
  const JobCodecs& codecs() const { return codecs_; }

 private:
  JobCodecs codecs_;
};

// Returns the plan that is in effect in `step`, or null if none is.
const PlanChange* PlanIn(absl::Span<const PlanChange> plans, uint64_t step);

}  // namespace sluice::server
