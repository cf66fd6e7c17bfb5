// SPDX-License-Identifier: Apache-2.0
// StepModel: predicts the step time of each choice of codecs from measured links and processors,
// and finds the cheapest choice. The model assumes that stages follow one another. Pure; used by
// the policy `auto`.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "server/control/codec_cpu_time.h"
#include "server/control/compute_time.h"
#include "server/control/link_estimate.h"
#include "server/control/measurements.h"
#include "server/control/policy_decision.h"

namespace sluice::server {

// One of the codecs to choose from. A choice applies to all tensors.
struct PricedCodec {
  CodecCpuTime cost{};
  Coding coding{};
  double error = 0;  // See Spent::error.
};

// Bytes per second, by rank.
struct LinkRates {
  std::vector<double> up;
  std::vector<double> down;
};

// The choices, by index, that each rank and the shards use to send.
struct CodecPick {
  std::vector<size_t> up;  // By rank.
  size_t down = 0;

  friend bool operator==(const CodecPick&, const CodecPick&) = default;
  friend bool operator<(const CodecPick& a, const CodecPick& b) {
    return std::tie(a.up, a.down) < std::tie(b.up, b.down);
  }
};

// Maximum bytes per step.
struct ByteLimits {
  std::vector<double> up;  // By rank.
  double down = 0;
};

class StepModel {
 public:
  // Needs at least one choice. `overlap` is the share of computing that can hide communication. An
  // error of 1 multiplies the number of steps by 1 + error_price. With `lockstep`, a step takes as
  // long as the slowest rank needs. Otherwise ranks advance independently, and the step time
  // follows from their mean pace.
  StepModel(std::vector<PricedCodec> choices, uint32_t ranks, double overlap, double error_price,
            bool lockstep = true);

  void AddStep(const StepMeasurements& measured);
  // Records that all ranks encoded with this choice, and that the slowest rank took `encode_s`
  // seconds.
  void AddEncoding(size_t choice, double encode_s);

  // True once all links and the compute time are known. Until then, of the functions below, only
  // compute_s and choice may be called.
  bool known() const;
  double compute_s() const { return compute_s_; }
  // The time that the last step waited for communication. In lockstep, this is the wait of the last
  // rank, for which the others waited. Otherwise, this is the wait at the mean pace of all ranks.
  double waited_s() const { return waited_s_; }
  const PricedCodec& choice(size_t i) const { return choices_[i]; }
  size_t choices() const { return choices_.size(); }

  // The rates that nearly all of the last steps reached, and the rates of the last step.
  LinkRates SustainedRates() const;
  LinkRates LastRates() const;

  double StepTime(const CodecPick& pick, const LinkRates& rates) const;
  // Returns the time that it takes to make as much progress as a step without error makes.
  double Cost(double step_s, const CodecPick& pick) const;
  double Cost(const CodecPick& pick, const LinkRates& rates) const {
    return Cost(StepTime(pick, rates), pick);
  }
  // Returns the cheapest pick within the limits, which must allow at least one pick. BestWith
  // considers only picks whose results use the choice `down`.
  CodecPick Best(const LinkRates& rates, const ByteLimits& limits) const;
  CodecPick BestWith(size_t down, const LinkRates& rates, const ByteLimits& limits) const;

  ByteLimits NoLimits() const;
  ByteLimits BytesOf(const CodecPick& pick) const;
  // Returns the limits, each raised to the next larger choice.
  ByteLimits NextLarger(ByteLimits limits) const;
  bool IsWithin(const CodecPick& pick, const ByteLimits& limits) const;
  // Returns the choice with the next larger or smaller bytes, or `choice` itself if there is none.
  size_t Beside(size_t choice, bool larger) const;

 private:
  struct Link {
    LinkEstimate up;
    LinkEstimate down;
  };

  double StepTime(size_t rank, size_t up, size_t down, const LinkRates& rates) const;
  double NextLarger(double bytes) const;

  std::vector<PricedCodec> choices_;
  std::vector<Link> links_;  // By rank.
  double overlap_;
  double error_price_;
  bool lockstep_;
  ComputeTime compute_;
  double compute_s_ = 0;  // Cached value of compute_, because compute_s() is called often.
  double waited_s_ = 0;
};

}  // namespace sluice::server
