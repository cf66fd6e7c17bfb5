// SPDX-License-Identifier: Apache-2.0
// ResultCheck: checks whether a shard's result can be the result of what this worker sent. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "protocol/exchange.h"
#include "worker/core/pipeline_options.h"

namespace sluice::worker {

class ResultCheck {
 public:
  // What this worker knows about a bundle when its result arrives.
  struct Own {
    uint32_t checksum = 0;     // Checksum of the frames that the worker sent.
    uint64_t version = 0;      // Version that the bundle's last result gave; 0 if unknown.
    bool catching_up = false;  // The worker joined late, and the shard may not wait for it yet.
  };

  // The options must outlive the check.
  explicit ResultCheck(const PipelineOptions& options) : options_(options) {}

  // Fails with INVALID_ARGUMENT if the result breaks the protocol, and with DATA_LOSS if its bytes
  // or its version do not fit together with its record or with what this worker has.
  absl::Status Check(uint32_t shard, const Own& own, const protocol::ExchangeReply& answer) const;
  // Checks the plan that a result announces, if it announces one. Fails with INVALID_ARGUMENT.
  absl::Status CheckPlan(uint32_t shard, const protocol::ExchangeReply& answer) const;

 private:
  absl::Status CheckRecord(const Own& own, const protocol::ExchangeReply& answer) const;
  absl::Status CheckIncluded(const protocol::ClosingRecord& record, size_t i) const;
  absl::Status CheckMembers(uint32_t shard, const Own& own,
                            const protocol::ExchangeReply& answer) const;
  absl::Status CheckVersions(uint64_t own_version, size_t chunks,
                             const protocol::ExchangeReply& answer) const;
  absl::Status CheckFrame(const std::string& frames, const protocol::Chunk& chunk) const;

  const PipelineOptions& options_;
};

}  // namespace sluice::worker
