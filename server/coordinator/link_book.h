// LinkBook: what one shard knows of the links to its workers, of how long requests wait for their
// turn, and of who is late why. Pure; time comes in. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "protocol/link_meter.h"
#include "server/control/link_estimate.h"
#include "server/control/measurements.h"

namespace sluice::server {

// Upper bounds, in seconds, of the buckets of LinkStats::queue_counts; a last bucket has no bound.
inline constexpr std::array<double, 12> kQueueBoundsSeconds = {1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4,
                                                               1e-3, 3e-3, 0.01, 0.03, 0.1,  1};

// Of one worker and one shard. Rates in bytes per second and latencies in seconds one way, both 0
// while they are not known; latency: half of a round trip.
struct LinkFigures {
  double up_rate = 0;
  double up_latency_s = 0;
  double down_rate = 0;
  double down_latency_s = 0;
  // How much later than the first rank's its last frames came, sum over steps: for longer
  // computing, and for the rest, which is its link's or its encoder's.
  double compute_late_s = 0;
  double network_late_s = 0;
};

struct LinkStats {
  std::vector<LinkFigures> ranks{};  // By rank.
  std::array<uint64_t, kQueueBoundsSeconds.size() + 1> queue_counts{};
  double queue_seconds = 0;
};

class LinkBook {
 public:
  // `lockstep`: ranks take their steps together; else each goes at its own pace.
  explicit LinkBook(uint32_t ranks, bool lockstep = true) : lockstep_(lockstep), ranks_(ranks) {}

  // A request of `rank`'s contribution to `step`, here at `came`, whose turn came `queued` later.
  void Arrived(uint32_t rank, uint64_t step, absl::Time came, absl::Duration queued);
  // What a rank reports of the step that it has finished, with the busy periods of its way up that
  // this shard saw. Passed over: of ranks that there are not, and a step that was reported before.
  void Report(uint32_t rank, absl::Span<const protocol::LinkPeriod> up,
              const protocol::LinkReport& report);
  // Who is there, where some may not be: 0 stands for nobody. Nobody waits for a report of theirs,
  // and what was measured says the same of them as of the lowest rank that reported.
  void SetPresent(absl::Span<const uint64_t> incarnations);
  // Steps are counted anew from here, after a rollback; links are as they were.
  void Rewind();

  LinkStats Stats() const;
  // What was measured of the last step that all ranks have reported, once; none: of no step since.
  // At their own pace: of the last step of each, once all have reported one since; who was late is
  // not told of them, as nobody waits. Transfers are of this shard's part of the link.
  std::optional<StepMeasurements> TakeStep();

 private:
  static constexpr size_t kStepsOpen = 4;  // That not all have reported; the oldest go beyond it.

  struct Rank {
    LinkEstimate up{};
    LinkEstimate down{};
    bool present = true;
    uint64_t reported = 0;                       // The newest step.
    std::map<uint64_t, absl::Time> last_came{};  // By step: of the frames so far; the newest two.
    double compute_late_s = 0;
    double network_late_s = 0;
  };
  struct Step {
    absl::Time first{};  // What arrivals are counted from: the first report's.
    std::map<uint32_t, RankMeasurements> ranks{};  // Of those who have reported.
    std::optional<job::CurvePoint> tested{};
  };

  void NoteStep(uint32_t rank, RankMeasurements measured, const protocol::LinkReport& report);
  bool AllReported(const Step& step) const;
  void EndStep(uint64_t number, Step step);

  const bool lockstep_;
  std::vector<Rank> ranks_;
  std::map<uint64_t, Step> steps_;  // That some have reported and not yet all.
  std::optional<StepMeasurements> measured_;
  LinkStats stats_;  // Of queues; ranks are filled in when somebody asks.
};

}  // namespace sluice::server
