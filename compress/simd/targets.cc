// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/targets.h"

#include "base/check.h"
#include "hwy/highway.h"

namespace sluice::compress {

std::vector<std::string> SimdTargets() {
  std::vector<std::string> names;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    names.emplace_back(hwy::TargetName(left & -left));
  }
  return names;
}

void ForceSimdTarget(const std::string& target) {
  hwy::SetSupportedTargetsForTest(0);
  int64_t forced = 0;
  if (!target.empty()) {
    for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
      if (target == hwy::TargetName(left & -left)) forced = left & -left;
    }
    Check(forced != 0, "a target to force is one of SimdTargets()");
  }
  hwy::SetSupportedTargetsForTest(forced);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace sluice::compress
