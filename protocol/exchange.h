// SPDX-License-Identifier: Apache-2.0
// Messages between workers and shards about one bundle of one step, as plain types. They mirror
// proto/sluice/v1 without protobuf, for the pure cores on both sides. docs/protocol.md defines the
// rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace sluice::protocol {

struct CompressionPlan;

// Returns a frame's bytes. Frames travel as strings.
inline absl::Span<const std::byte> FrameBytes(const std::string& frames) {
  return {reinterpret_cast<const std::byte*>(frames.data()), frames.size()};
}

// Identity of a sender. The fields (job_uid, term, rank) are part of a contribution's key; the
// other fields are fences.
struct Sender {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint32_t generation = 0;
  uint64_t server_incarnation = 0;

  friend bool operator==(const Sender&, const Sender&) = default;
};

struct Included {
  uint32_t rank = 0;
  uint64_t origin_step = 0;
  uint32_t checksum = 0;
  bool skipped = false;
  // The amount that this contribution adds to the record's n. For a relay, this is the number of
  // contributions in its sum.
  uint32_t weight = 1;

  friend bool operator==(const Included&, const Included&) = default;
};

struct ClosingRecord {
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t bundle = 0;
  uint32_t generation = 0;
  std::vector<Included> included;  // Ordered by (rank, origin step).
  uint32_t n = 0;
  uint64_t plan_id = 0;
  float rate = 0;
  float momentum = 0;
  uint32_t result_checksum = 0;

  friend bool operator==(const ClosingRecord&, const ClosingRecord&) = default;
};

// A checkpoint is named at least so many steps ahead of the furthest rank.
inline constexpr uint64_t kNamedAhead = 2;

// What a contribution is made from, and how urgent its result is. 0 means unknown.
struct Work {
  uint64_t samples = 0;   // Samples, or tokens, since the last contribution.
  uint64_t steps = 0;     // Optimizer steps since the last contribution.
  uint64_t slack_us = 0;  // For how long the sender does other work before it needs the result.

  friend bool operator==(const Work&, const Work&) = default;
};

// One worker's contribution to one bundle. Frames are byte strings, as in messages.
struct ExchangeRequest {
  Sender sender;
  uint64_t step = 0;
  uint32_t bundle = 0;
  bool skip = false;
  bool keys_only = false;
  std::vector<std::string> frames;  // One per chunk of the bundle; empty with skip or keys_only.
  std::vector<uint32_t> checksums;  // Only with keys_only.
  uint64_t plan_id = 0;
  uint64_t base_version = 0;
  uint64_t acked_step = 0;
  // The step after which a job checkpoint is due. 0 means that no such step is known.
  uint64_t checkpoint_step = 0;
  // Learning rate of this contribution's update, in jobs whose shards run the optimizer.
  float rate = 0;
  // For a relay: the number of contributions that this one combines.
  uint32_t weight = 1;
  Work work{};
  // Only for bundle 0: the plan that begins with the next step. Null if the worker knows of none.
  std::shared_ptr<const CompressionPlan> plan{};
  // Only for bundle 0 of shard 0: true if the request is sent again although its result has already
  // arrived. `announced` is the plan in that result, which begins two steps later, or null.
  bool answered = false;
  std::shared_ptr<const CompressionPlan> announced{};
};

enum class Outcome { kResult, kPending, kNeed, kFenced, kInvalid, kBusy };

struct ExchangeReply {
  Outcome outcome = Outcome::kResult;
  uint64_t step = 0;
  uint32_t bundle = 0;
  ClosingRecord record;  // Only with kResult.
  // Only with kResult; one string per chunk. Each contains the frame of the mean and, for some
  // codecs, a second frame that senders need. Empty if record.n == 0.
  std::vector<std::string> results;
  uint64_t base_version = 0;
  uint64_t version = 0;
  uint64_t need_from = 0;       // Only with kNeed: the first missing step.
  uint32_t retry_after_ms = 0;  // Only with kBusy.
  std::string message;          // Only with kFenced and kInvalid: human-readable explanation.
  // Only with kResult: the step after which a job checkpoint is due. 0 means that no such step is
  // known.
  uint64_t checkpoint_step = 0;
  // Only with kFenced: the job's term. After a rollback, this term is above the sender's.
  uint32_t term = 0;
  // Only with kResult: true if the results are fp32 parameters that replace the worker's. Otherwise
  // the worker adds the results to its parameters.
  bool exact = false;
  // Only with kResult: the number of updates to the bundle between the replica from which the
  // contribution was computed and the shard's current replica.
  uint64_t staleness = 0;
  uint64_t open_step = 0;  // Only with kResult: the shard's open step.
  // Only with kResult, for bundle 0 of shard 0: the plan that begins two steps later. Null if there
  // is none.
  std::shared_ptr<const CompressionPlan> plan{};
  // Only with kResult, for bundle 0 of shard 0, if ExchangeSpec::lists_members(): the ranks that a
  // worker holds, ascending. In lockstep, without newcomers that were not in time for the step.
  std::vector<uint32_t> members{};
};

// Returns the checksum that records carry: CRC-32C over the frames' own checksums (little-endian),
// in order. The result is 0 if there are no frames. A frame that is too short to have a checksum
// contributes 0. A chunk may have several frames.
uint32_t BundleChecksum(const std::vector<std::string>& frames);
// Returns the checksum for the frames of an exchange, or for the listed checksums of frames.
uint32_t BundleChecksum(const ExchangeRequest& exchange);

// Returns the size of the frames on the wire, in bytes.
uint64_t TotalBytes(const std::vector<std::string>& frames);

}  // namespace sluice::protocol
