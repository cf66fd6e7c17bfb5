// SPDX-License-Identifier: Apache-2.0
// MergeSpec: the job file's keys that say how contributions become one result.
#pragma once

#include <cmath>
#include <cstdint>

#include "job/enums.h"

namespace sluice::job {

struct MergeSpec {
  MergeWeights weights = MergeWeights::kEqual;
  MergeOver over = MergeOver::kAll;
  MergeMethod method = MergeMethod::kMean;
  double late_decay = 0;  // Only with a quorum.

  // Returns the factor of a contribution that is in the result of a later exchange of its bundle,
  // `age` exchanges after its own (CGAD, arXiv:2605.09126). The rest returns to the sender's
  // residual.
  float LateFactor(uint64_t age) const {
    return static_cast<float>(std::exp(-late_decay * static_cast<double>(age)));
  }
  // Returns true if the result is the plain mean of all contributions.
  bool plain() const {
    return weights == MergeWeights::kEqual && over == MergeOver::kAll &&
           method == MergeMethod::kMean && late_decay == 0;
  }
};

}  // namespace sluice::job
