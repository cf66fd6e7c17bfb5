// JobHistory: what a job did since this coordinator started, in a bounded number of points. Fed
// with statuses, once a second or less often. Pure; time comes in. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

// What a step's time went into; seconds of one worker, or the mean of several.
struct StepSplit {
  double compute = 0;   // Forward, backward, the optimizer, loading data, tests.
  double encode = 0;    // It waited for its own encoder, or decoded.
  double wait = 0;      // For other workers, and for the shards.
  double transfer = 0;  // On its link, both ways.

  double seconds() const { return compute + encode + wait + transfer; }
};

// The job at a moment. Rates are over some seconds before it; what is not known yet is absent.
struct HistoryPoint {
  double seconds = 0;  // Since this coordinator started.
  uint64_t step = 0;   // Of the foremost worker.
  // Of the workers: mean, least and most of what they reported last. Not finite: it is not.
  std::optional<double> loss{};
  std::optional<double> loss_min{};
  std::optional<double> loss_max{};
  std::optional<double> validation_metric{};  // The highest that a worker reported last.
  std::optional<StepSplit> split{};           // Mean of the workers.
  // All workers together; serialized messages.
  double bytes_up_per_second = 0;
  double bytes_down_per_second = 0;
  // Dense fp32 bytes of the same steps over bytes sent.
  std::optional<double> ratio_up{};
  std::optional<double> ratio_down{};
};

// One worker over the last seconds, or over its last step if that took longer.
struct MemberPace {
  StepSplit split{};
  double bytes_up_per_step = 0;
  double bytes_down_per_step = 0;
};

class JobHistory {
 public:
  // Points that are kept. When they are, every second one is dropped, and from then on they are
  // taken half as often.
  static constexpr size_t kPointsMax = 360;
  static constexpr absl::Duration kWindow = absl::Seconds(10);  // Of paces and of points' rates.

  // Does nothing before due(), a second after the call before.
  absl::Time due() const { return next_; }
  void Add(const JobStatus& status, absl::Time now);

  std::vector<HistoryPoint> Points() const;
  // Nothing of a worker that has not finished two steps, or is not there.
  std::optional<MemberPace> Pace(uint32_t rank) const;
  // Since some worker last finished a step; absent: none did yet.
  std::optional<absl::Duration> since_step() const;

 private:
  // Sums since processes began, so that a point may be dropped and rates stay right. Where one
  // falls, a process is another.
  struct Sums {
    uint64_t steps = 0;
    double compute = 0;
    double encode = 0;
    double exchange = 0;
    double waited = 0;
    uint64_t bytes_up = 0;
    uint64_t bytes_down = 0;
    uint64_t dense_up = 0;
    uint64_t dense_down = 0;

    void Add(const MemberStatus& member);
    bool FellSince(const Sums& before) const;
  };
  struct Sample {
    absl::Time at;
    Sums sums;
    HistoryPoint point;  // What is of the moment.
  };
  struct MemberSample {
    absl::Time at;
    Sums sums;
  };

  static StepSplit SplitBetween(const Sums& before, const Sums& after);
  void AddMember(const MemberStatus& member, absl::Time now);
  void FillRates(size_t i, HistoryPoint* point) const;

  absl::Duration every_ = absl::Seconds(1);
  absl::Time next_ = absl::InfinitePast();
  absl::Time next_kept_ = absl::InfinitePast();
  std::deque<Sample> samples_;
  std::vector<std::deque<MemberSample>> members_;  // By rank; one for each second with a step.
  uint64_t furthest_step_ = 0;
  absl::Time now_ = absl::InfinitePast();
  absl::Time stepped_ = absl::InfinitePast();
};

}  // namespace sluice::server
