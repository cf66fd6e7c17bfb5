// StepModel: how long a step would take with each choice of codecs, by the links and the
// processors as they were measured, and which choice costs least. Stages follow one another. Pure;
// for the policy `auto`.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "server/control/codec_cost.h"
#include "server/control/compute_time.h"
#include "server/control/link_estimate.h"
#include "server/control/measurements.h"
#include "server/control/plan.h"

namespace sluice::server {

// One of the codecs to choose from, for all tensors.
struct PricedCodec {
  CodecCost cost{};
  Coding coding{};
  double error = 0;  // As Spent has it.
};

// Bytes per second, by rank.
struct LinkRates {
  std::vector<double> up;
  std::vector<double> down;
};

// Which of the choices each rank sends with, and the shards: numbers of them.
struct CodecPick {
  std::vector<size_t> up;  // By rank.
  size_t down = 0;

  friend bool operator==(const CodecPick&, const CodecPick&) = default;
  friend bool operator<(const CodecPick& a, const CodecPick& b) {
    return std::tie(a.up, a.down) < std::tie(b.up, b.down);
  }
};

// Bytes of a step, at most.
struct ByteLimits {
  std::vector<double> up;  // By rank.
  double down = 0;
};

class StepModel {
 public:
  // At least one choice. `overlap` is the share of computing that communication can hide behind;
  // error 1 is as bad as `error_price` x as many steps more. `lockstep`: a step takes all ranks as
  // long as the slowest; else each goes on by itself, and a step is one of their mean pace.
  StepModel(std::vector<PricedCodec> choices, uint32_t ranks, double overlap, double error_price,
            bool lockstep = true);

  void AddStep(const StepMeasurements& measured);
  // All ranks have encoded with that choice, the slowest in so many seconds.
  void AddEncoding(size_t choice, double encode_s);

  // False while a link or the time of computing is not known; then nothing below is to be asked but
  // compute_s and choice.
  bool known() const;
  double compute_s() const { return compute_s_; }
  // Of the last step: what the rank that came last waited, and so the others for it; not in
  // lockstep what all of them did, at their mean pace.
  double waited_s() const { return waited_s_; }
  const PricedCodec& choice(size_t i) const { return choices_[i]; }
  size_t choices() const { return choices_.size(); }

  // What nearly all of the last steps had, and what the last one had.
  LinkRates SustainedRates() const;
  LinkRates LastRates() const;

  double StepTime(const CodecPick& pick, const LinkRates& rates) const;
  // The time that as much progress takes as a step without error makes.
  double Cost(double step_s, const CodecPick& pick) const;
  double Cost(const CodecPick& pick, const LinkRates& rates) const {
    return Cost(StepTime(pick, rates), pick);
  }
  // Of those within the limits, which at least one is, the one of least cost; with `down`: of those
  // with results of that choice.
  CodecPick Best(const LinkRates& rates, const ByteLimits& limits) const;
  CodecPick BestWith(size_t down, const LinkRates& rates, const ByteLimits& limits) const;

  ByteLimits NoLimits() const;
  ByteLimits BytesOf(const CodecPick& pick) const;
  // Each raised to the next larger choice.
  ByteLimits NextLarger(ByteLimits limits) const;
  bool IsWithin(const CodecPick& pick, const ByteLimits& limits) const;
  // The choice next to it in bytes; itself where there is none.
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
  double compute_s_ = 0;  // Of compute_, which is asked often.
  double waited_s_ = 0;
};

}  // namespace sluice::server
