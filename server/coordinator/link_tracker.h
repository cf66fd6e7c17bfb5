// SPDX-License-Identifier: Apache-2.0
// LinkTracker: measures, for one shard, the links to its workers, the queueing of requests, and the
// causes of lateness. Pure; callers pass the time. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "protocol/link_meter.h"
#include "protocol/shard_control.h"
#include "server/control/link_estimate.h"
#include "server/control/measurements.h"

namespace sluice::server {

// Upper bounds, in seconds, of the buckets of LinkStats::queue_counts. One additional bucket has no
// bound.
inline constexpr std::array<double, 12> kQueueBoundsSeconds = {1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4,
                                                               1e-3, 3e-3, 0.01, 0.03, 0.1,  1};

struct LinkStats {
  std::vector<protocol::LinkFigures> ranks{};  // By rank.
  std::array<uint64_t, kQueueBoundsSeconds.size() + 1> queue_counts{};
  double queue_seconds = 0;
};

class LinkTracker {
 public:
  // With `lockstep`, ranks take steps together. Otherwise each rank has its own pace.
  explicit LinkTracker(uint32_t ranks, bool lockstep = true) : lockstep_(lockstep), ranks_(ranks) {}

  // Records a request with the contribution of `rank` to `step`. The request arrived at `came` and
  // was handled after a wait of `queued`.
  void Arrived(uint32_t rank, uint64_t step, absl::Time came, absl::Duration queued);
  // Takes a rank's report of the step that it has finished, and the busy periods of its uplink that
  // this shard observed. Ignores ranks that do not exist and steps that were reported before.
  void Report(uint32_t rank, absl::Span<const protocol::LinkPeriod> up,
              const protocol::LinkReport& report);
  // Sets which ranks are present; 0 means that no worker holds the rank. The tracker does not wait
  // for reports of absent ranks. In measurements, absent ranks get the values of the lowest rank
  // that reported.
  void SetPresent(absl::Span<const uint64_t> incarnations);
  // Forgets the reported steps, which the job repeats after a rollback. Keeps the link estimates.
  void Rewind();

  LinkStats Stats() const;
  // Returns each measurement once, or nothing if there is no new one. In lockstep, a measurement
  // covers the last step that all ranks have reported. Otherwise, it covers the last step of each
  // rank, and is complete when all ranks have reported since the previous measurement; it contains
  // no lateness, because no rank waits. Transfers cover this shard's part of the link; `whole`
  // multiplies their bytes.
  std::optional<StepMeasurements> TakeStep(double whole = 1);

 private:
  // Limit on the steps that only some ranks have reported. The oldest ones are dropped.
  static constexpr size_t kStepsOpen = 4;

  struct Rank {
    LinkEstimate up{};
    LinkEstimate down{};
    bool present = true;
    uint64_t reported = 0;  // The newest step that the rank reported.
    // Arrival of the last frames of a step, for the newest two steps.
    std::map<uint64_t, absl::Time> last_came{};
    double compute_late_s = 0;
    double network_late_s = 0;
  };
  struct Step {
    // Origin of arrival times: the arrival of the first rank that reported the step.
    absl::Time first{};
    std::map<uint32_t, RankMeasurements> ranks{};  // Ranks that have reported.
    std::optional<job::CurvePoint> tested{};
  };

  void NoteStep(uint32_t rank, RankMeasurements measured, const protocol::LinkReport& report);
  bool AllReported(const Step& step) const;
  void EndStep(uint64_t number, Step step);

  const bool lockstep_;
  std::vector<Rank> ranks_;
  std::map<uint64_t, Step> steps_;  // Steps that some ranks have reported, but not all.
  std::optional<StepMeasurements> measured_;
  LinkStats stats_;  // Queue counters; Stats() fills in the ranks.
};

}  // namespace sluice::server
