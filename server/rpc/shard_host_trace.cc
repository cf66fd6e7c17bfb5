// What ShardHost writes into a trace.
#include <algorithm>

#include "server/rpc/shard_host.h"

namespace sluice::server {
namespace {

// For traces, of bundles that are open: beyond it waiting is not told.
constexpr size_t kTracedBundlesMax = 1 << 16;

}  // namespace

// Summing and encoding take turns, chunk by chunk: drawn as one after the other.
void ShardHost::TraceHandled(const TraceTags& tags, absl::Time begin, double encoding) {
  const absl::Time end = clock_->Now();
  const absl::Time summed = std::max(begin, end - absl::Seconds(encoding));
  options_.trace->Span("sum", begin, summed, tags);
  if (summed < end) options_.trace->Span("encode", summed, end, tags);
  handled_at_ = begin;
  if (first_arrivals_.size() < kTracedBundlesMax) {
    first_arrivals_.try_emplace({*tags.step, *tags.bundle}, begin);
  }
}

void ShardHost::TraceResult(const protocol::ExchangeAnswer& answer) {
  const auto first = first_arrivals_.find({answer.step, answer.bundle});
  if (first == first_arrivals_.end()) return;  // The result of all ranks is told once.
  options_.trace->Overlapping("wait", answer.bundle, first->second,
                              std::max(first->second, handled_at_),
                              {.step = answer.step, .bundle = answer.bundle});
  first_arrivals_.erase(first);
}

}  // namespace sluice::server
