// SPDX-License-Identifier: Apache-2.0
// JobHistory: a job's history since this coordinator started, in a bounded number of points. It
// records a status at most once per second. Pure; callers pass the time. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

// The parts of a step's time in seconds, either of one worker or as the mean of several workers.
struct StepSplit {
  double compute = 0;   // Forward, backward, the optimizer, loading of data, and tests.
  double encode = 0;    // Waiting for the worker's own encoder, and decoding.
  double wait = 0;      // Waiting for other workers and for the shards.
  double transfer = 0;  // Transfers on the worker's link in both directions.

  double seconds() const { return compute + encode + wait + transfer; }
};

// The state of the job at one moment. Rates cover the last seconds before that moment; unknown
// values are unset.
struct HistoryPoint {
  double seconds = 0;  // Since this coordinator started.
  uint64_t step = 0;   // Step of the worker that is furthest ahead.
  // Mean, minimum and maximum of the losses that workers reported last. Not finite if one of these
  // losses is not finite.
  std::optional<double> loss{};
  std::optional<double> loss_min{};
  std::optional<double> loss_max{};
  // The highest of the values that workers reported last.
  std::optional<double> validation_metric{};
  std::optional<StepSplit> split{};  // Mean of the workers.
  // Bytes of serialized messages, summed over all workers.
  double bytes_up_per_second = 0;
  double bytes_down_per_second = 0;
  // The bytes that dense fp32 would need for the same steps, divided by the bytes sent.
  std::optional<double> ratio_up{};
  std::optional<double> ratio_down{};
};

// Values of one worker over the last seconds, or over its last step if that took longer.
struct MemberPace {
  StepSplit split{};
  double bytes_up_per_step = 0;
  double bytes_down_per_step = 0;
};

class JobHistory {
 public:
  // Maximum number of points. When it is reached, every second point is dropped, and new points are
  // added half as often.
  static constexpr size_t kPointsMax = 360;
  // The window for paces and for the rates of points.
  static constexpr absl::Duration kWindow = absl::Seconds(10);

  // The earliest time at which Add records a status again: one second after it last recorded one.
  // Before that time, Add does nothing.
  absl::Time due() const { return next_; }
  void Add(const JobStatus& status, absl::Time now);

  std::vector<HistoryPoint> Points() const;
  // Returns nothing for a worker that is absent or has not finished two steps.
  std::optional<MemberPace> Pace(uint32_t rank) const;
  // Time since a worker last finished a step; unset if no worker has finished one.
  std::optional<absl::Duration> since_step() const;

 private:
  // Sums since each process began, so that rates stay correct when a point is dropped. A sum
  // decreases when a process is replaced.
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
    HistoryPoint point;  // Current values, without rates.
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
  // By rank: one sample for each second in which the worker finished a step.
  std::vector<std::deque<MemberSample>> members_;
  uint64_t furthest_step_ = 0;
  absl::Time now_ = absl::InfinitePast();
  absl::Time stepped_ = absl::InfinitePast();
};

}  // namespace sluice::server
