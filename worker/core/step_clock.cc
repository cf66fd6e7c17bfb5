#include "worker/core/step_clock.h"

#include <algorithm>

namespace sluice::worker {

void StepClock::Encoded(absl::Time begin, absl::Time end) {
  encoded_ = std::max(encoded_, end);
  encoding_ += end - begin;
}

void StepClock::Waited(absl::Time begin, absl::Time end) {
  if (ended_.has_value()) {
    const absl::Time encoded = std::clamp(encoded_, begin, end);
    ++seconds_.steps;
    seconds_.compute +=
        absl::ToDoubleSeconds(std::max(begin - *ended_ - decoded_, absl::ZeroDuration()));
    seconds_.decode += absl::ToDoubleSeconds(decoded_);
    seconds_.encode += absl::ToDoubleSeconds(encoded - begin);
    seconds_.exchange += absl::ToDoubleSeconds(end - encoded);
    seconds_.encode_hidden_too += absl::ToDoubleSeconds(encoding_);
  }
  ended_ = end;
  encoding_ = decoded_ = absl::ZeroDuration();
}

}  // namespace sluice::worker
