// SPDX-License-Identifier: Apache-2.0
// ShardTrace: writes a shard's spans to the trace file: the work on each contribution, the wait of
// each bundle for its last contribution, and the sending. The host's lock guards this object.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "base/trace_file.h"
#include "protocol/exchange.h"

namespace sluice::server {

class ShardTrace {
 public:
  // `file` is not owned; null writes no trace.
  explicit ShardTrace(TraceFile* file) : file_(file) {}

  // The other methods require a trace.
  bool on() const { return file_ != nullptr; }
  // Records that a contribution was handled. `tags` must name its step and its bundle; `encoding`
  // is in processor seconds of this call.
  void Handled(const TraceTags& tags, absl::Time begin, absl::Time end, double encoding);
  // Records that a result was sent. Each result counts only once, although it goes to all ranks.
  void Answered(const protocol::ExchangeReply& answer);
  void Sent(absl::Time begin, absl::Time end) { file_->Span("send", begin, end); }

 private:
  TraceFile* const file_;
  // Arrival of the first contribution to each open bundle, by (step, bundle).
  std::map<std::pair<uint64_t, uint32_t>, absl::Time> first_arrivals_;
  absl::Time handled_at_;  // Arrival of the last contribution.
};

}  // namespace sluice::server
