// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_trace.h"

#include <algorithm>

namespace sluice::server {
namespace {

// Maximum number of open bundles in a trace. Waits of further bundles are not traced.
constexpr size_t kTracedBundlesMax = 1 << 16;

}  // namespace

// Summing and encoding alternate for each chunk, but the trace shows one span after the other.
void ShardTrace::Handled(const TraceTags& tags, absl::Time begin, absl::Time end, double encoding) {
  const absl::Time summed = std::max(begin, end - absl::Seconds(encoding));
  file_->Span("sum", begin, summed, tags);
  if (summed < end) file_->Span("encode", summed, end, tags);
  handled_at_ = begin;
  if (first_arrivals_.size() < kTracedBundlesMax) {
    first_arrivals_.try_emplace({*tags.step, *tags.bundle}, begin);
  }
}

void ShardTrace::Answered(const protocol::ExchangeReply& answer) {
  const auto first = first_arrivals_.find({answer.step, answer.bundle});
  if (first == first_arrivals_.end()) return;  // The result is traced only once.
  file_->Overlapping("wait", answer.bundle, first->second, std::max(first->second, handled_at_),
                     {.step = answer.step, .bundle = answer.bundle});
  first_arrivals_.erase(first);
}

}  // namespace sluice::server
