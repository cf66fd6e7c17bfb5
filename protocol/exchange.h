// What workers and shards say to each other about one bundle of one step, in plain types:
// proto/sluice/v1 without protobuf, for the pure cores on both sides. Rules: docs/protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace sluice::protocol {

struct CompressionPlan;

// Frames travel as strings and are read as bytes.
inline absl::Span<const std::byte> FrameBytes(const std::string& frames) {
  return {reinterpret_cast<const std::byte*>(frames.data()), frames.size()};
}

// Who sent something. (job_uid, term, rank) belong to the key of a contribution; the rest are
// fences.
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
  uint32_t weight = 1;  // What it adds to the record's n: of a relay, the contributions inside.

  friend bool operator==(const Included&, const Included&) = default;
};

struct ClosingRecord {
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t bundle = 0;
  uint32_t generation = 0;
  std::vector<Included> included;  // In (rank, origin step) order.
  uint32_t n = 0;
  uint64_t plan_id = 0;
  float rate = 0;
  float momentum = 0;
  uint32_t result_checksum = 0;

  friend bool operator==(const ClosingRecord&, const ClosingRecord&) = default;
};

// One worker's part of one bundle. Frames are byte strings as they came from, or go into, a
// message.
struct Exchange {
  Sender sender;
  uint64_t step = 0;
  uint32_t bundle = 0;
  bool skip = false;
  bool keys_only = false;
  std::vector<std::string> frames;  // One per chunk of the bundle; none with skip or keys_only.
  std::vector<uint32_t> checksums;  // With keys_only.
  uint64_t plan_id = 0;
  uint64_t base_version = 0;
  uint64_t acked_step = 0;
  uint64_t checkpoint_step = 0;  // A job checkpoint is due after this step; 0: none known.
  float rate = 0;                // Of the update that this is for, where the shards do it.
  uint32_t weight = 1;           // Contributions inside, of a relay.
  // With bundle 0: the plan that begins with the next step; null: none that the worker knows of.
  std::shared_ptr<const CompressionPlan> plan{};
  // Of shard 0's bundle 0, sent again though its result was there: that announced this plan, which
  // begins two steps later; null: none.
  bool answered = false;
  std::shared_ptr<const CompressionPlan> announced{};
};

enum class Outcome { kResult, kPending, kNeed, kFenced, kInvalid, kBusy };

struct ExchangeAnswer {
  Outcome outcome = Outcome::kResult;
  uint64_t step = 0;
  uint32_t bundle = 0;
  ClosingRecord record;  // With kResult.
  // With kResult, one string per chunk: the frame of the mean, and for some codecs a second frame
  // that senders need. None if record.n == 0.
  std::vector<std::string> results;
  uint64_t base_version = 0;
  uint64_t version = 0;
  uint64_t need_from = 0;        // With kNeed: the first step that is not there.
  uint32_t retry_after_ms = 0;   // With kBusy.
  std::string message;           // With kFenced, kInvalid: for a person.
  uint64_t checkpoint_step = 0;  // With kResult: one is due after this step; 0: none known.
  uint32_t term = 0;             // With kFenced: the job's; above the sender's after a rollback.
  // With kResult. The results are parameters themselves, in fp32, not what to add to them.
  bool exact = false;
  // With kResult: updates of the bundle between the replica that the contribution was made on and
  // its own.
  uint64_t staleness = 0;
  uint64_t open_step = 0;  // With kResult: the shard's.
  // With kResult, of shard 0's bundle 0: the plan that begins two steps later; null: none does.
  std::shared_ptr<const CompressionPlan> plan{};
};

// CRC-32C over the frames' own checksums (little-endian), in order: what records carry. 0 for no
// frames; a frame too short to have a checksum counts as 0. A chunk may have several frames.
uint32_t BundleChecksum(const std::vector<std::string>& frames);
// The same of what an exchange brings, or names by its frames' checksums.
uint32_t BundleChecksum(const Exchange& exchange);

// Of frames as they travel, in bytes.
uint64_t TotalBytes(const std::vector<std::string>& frames);

}  // namespace sluice::protocol
