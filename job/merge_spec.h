// SPDX-License-Identifier: Apache-2.0
// MergeSpec: the job file's `merge_` keys, which say how contributions become one result.
#pragma once

#include "job/enums.h"

namespace sluice::job {

struct MergeSpec {
  MergeWeights weights = MergeWeights::kEqual;
  MergeOver over = MergeOver::kAll;
  MergeMethod method = MergeMethod::kMean;

  // Returns true if the result is the plain mean of all contributions.
  bool plain() const {
    return weights == MergeWeights::kEqual && over == MergeOver::kAll &&
           method == MergeMethod::kMean;
  }
};

}  // namespace sluice::job
