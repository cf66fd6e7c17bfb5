// SPDX-License-Identifier: Apache-2.0
#include "worker/core/step_clock.h"

#include <algorithm>

namespace sluice::worker {

void StepClock::Encoded(absl::Time begin, absl::Time end) {
  encoded_ = std::max(encoded_, end);
  encoding_ += end - begin;
}

void StepClock::WaitedForTensors(absl::Time begin, absl::Time end, bool encoding) {
  const absl::Time encoded = encoding ? end : std::clamp(encoded_, begin, end);
  waited_encoding_ += encoded - begin;
  waited_exchange_ += end - encoded;
}

void StepClock::Waited(absl::Time begin, absl::Time end) {
  WaitedForTensors(begin, end, /*encoding=*/false);
  if (ended_.has_value()) {
    const absl::Duration elsewhere = waited_encoding_ + waited_exchange_ + decoded_;
    ++seconds_.steps;
    seconds_.compute +=
        absl::ToDoubleSeconds(std::max(end - *ended_ - elsewhere, absl::ZeroDuration()));
    seconds_.decode += absl::ToDoubleSeconds(decoded_);
    seconds_.encode += absl::ToDoubleSeconds(waited_encoding_);
    seconds_.exchange += absl::ToDoubleSeconds(waited_exchange_);
    seconds_.encode_hidden_too += absl::ToDoubleSeconds(encoding_);
  }
  ended_ = end;
  encoding_ = decoded_ = waited_encoding_ = waited_exchange_ = absl::ZeroDuration();
}

}  // namespace sluice::worker
