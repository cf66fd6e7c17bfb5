// LinkMeter: what the receiver of one stream makes of one direction of its link: the busy periods,
// in which bytes travelled without a pause. Pure; time comes in. Not thread-safe.
//
// A message says when its sender had it ready, by the sender's clock. The clocks' origins differ by
// an unknown constant, and so what is known of a message is its way up to that constant. The
// shortest of the last ways is that of a small message on an idle link: latency and the constant.
// What a message took beyond that, it took because of bytes: its own and those before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace sluice::protocol {

// One busy period: from when the link was free and something was ready, until all of it had come.
struct LinkPeriod {
  uint64_t bytes = 0;
  double seconds = 0;  // Without latency. More than 0.

  friend bool operator==(const LinkPeriod&, const LinkPeriod&) = default;
};

// What a worker tells a shard once a step: of the link between them, and of itself. Durations, each
// by the worker's clock.
struct LinkReport {
  static constexpr size_t kPeriodsMax = 4;

  uint64_t step = 0;               // That was just finished.
  double round_trip_s = 0;         // Of a small message on an idle link; 0: not known yet.
  std::vector<LinkPeriod> down{};  // Of results from that shard, since the last report.
  double compute_s = 0;            // Of the step: whatever is not below.
  double encode_s = 0;             // All encoding, beside computing or not.
  double apply_s = 0;              // Results into parameters; those of the step before.
  double exposed_s = 0;            // It waited: for its own encoding, then for results.
  std::optional<double> tested{};  // Accuracy, 0 to 1, of a test since the last report.

  friend bool operator==(const LinkReport&, const LinkReport&) = default;
};

class LinkMeter {
 public:
  // The shortest way is looked for since so many probes: a way that has become longer is believed
  // after that, and clocks that drift are followed.
  static constexpr size_t kProbes = 16;

  // Nanoseconds: `ready` by the sender's clock, as a message says it (0: it does not, and nothing
  // is measured); `came` by this side's. `probe`: it is small and was sent on an idle link. Until
  // the first one there are no periods: a way may be long because of its bytes.
  void Came(uint64_t bytes, uint64_t ready, int64_t came, bool probe = false);
  // Ends the period that is open: nothing that belongs to it comes any more. The periods since the
  // last call; of more than kPeriodsMax the largest, with the smallest as the last.
  std::vector<LinkPeriod> Take();

 private:
  struct Open {
    uint64_t bytes = 0;
    int64_t begin = 0;  // By this side's clock, and later by the latency.
    int64_t end = 0;
  };

  void Close();

  std::deque<int64_t>
      shortest_;  // Ways in nanoseconds, of each probe and what came until the next.
  std::optional<Open> open_;
  int64_t last_came_ = 0;
  std::vector<LinkPeriod> periods_;
};

}  // namespace sluice::protocol
