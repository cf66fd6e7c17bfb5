// SPDX-License-Identifier: Apache-2.0
#include "worker/train/rounds.h"

namespace sluice::worker {

Rounds::Rounds(const job::JobSpec& spec)
    : streams_(job::StreamsFragments(spec)),
      steps_(job::StepsPerExchange(spec)),
      fragments_(spec.exchange.compression.layout.fragments),
      delay_(spec.local.fragment_delay) {}

bool Rounds::BeginsAfter(uint64_t step, uint64_t total) const {
  return step > 0 && BegunBy(step, total) > BegunBy(step - 1, total);
}

bool Rounds::EndsAfter(uint64_t step, uint64_t total) const {
  if (!streams_) return BeginsAfter(step, total);
  if (step < total) return step > delay_ && BeginsAfter(step - delay_, total);
  // The exchange that is in flight at the end is adopted early.
  const uint64_t before = step > delay_ ? step - delay_ - 1 : 0;
  return BegunBy(step, total) > BegunBy(before, total);
}

bool Rounds::CanFollow(uint64_t exchange, uint64_t step, uint64_t total) const {
  if (!streams_) return exchange == (step + steps_ - 1) / steps_;
  const uint64_t begun = BegunBy(step, total);
  return exchange >= begun && exchange <= (step == total ? InAll(total) : begun);
}

uint64_t Rounds::BegunBy(uint64_t step, uint64_t total) const {
  if (!streams_) return step / steps_ + (step == total && step % steps_ != 0 ? 1 : 0);
  const uint64_t last = step < total || step == 0 ? step : step - 1;
  // The exchanges e with floor(e * steps / fragments) <= last.
  return ((last + 1) * fragments_ - 1) / steps_;
}

}  // namespace sluice::worker
