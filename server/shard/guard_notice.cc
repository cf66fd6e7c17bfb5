// SPDX-License-Identifier: Apache-2.0
#include "server/shard/guard_notice.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace sluice::server {
namespace {

absl::string_view ActionOf(job::GuardPolicy policy) {
  switch (policy) {
    case job::GuardPolicy::kClip:
      return "is scaled to the median norm";
    case job::GuardPolicy::kSkip:
      return "is left out";
    case job::GuardPolicy::kOff:
    case job::GuardPolicy::kWarn:
      break;
  }
  return "still counts (guard.policy warn)";
}

}  // namespace

Notice RankNotice(uint64_t step, uint32_t rank, std::string text) {
  return {.text = std::move(text),
          .warning = true,
          .fields = {.event = "contribution_outlier", .rank = rank, .step = step}};
}

Notice OutlierNotice(const job::GuardSpec& spec, uint64_t step, uint32_t rank, double ratio) {
  return RankNotice(
      step, rank,
      absl::StrFormat("a contribution of rank %d has %.3g times the median norm; the limit is %g "
                      "times (guard.limit); it %s",
                      rank, ratio, spec.limit, ActionOf(spec.policy)));
}

}  // namespace sluice::server
