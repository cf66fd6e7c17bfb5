// SPDX-License-Identifier: Apache-2.0
// RankTable: what a lockstep shard knows of each rank: the steps that the rank has requested and
// acknowledged, the steps that an earlier holder of the rank may have contributed to, and the
// contributions that are not answered yet. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "protocol/exchange.h"
#include "server/shard/shard.h"

namespace sluice::server {

class RankTable {
 public:
  // With a quorum: the last admitted contribution of a rank to a bundle. Earlier steps are repeats.
  struct Admitted {
    uint64_t step = 0;
    uint32_t checksum = 0;
  };
  using Selects = absl::FunctionRef<bool(uint32_t)>;

  // `options` must outlive the table.
  RankTable(const ShardOptions* options, size_t bundles);

  // Returns the bytes of memory that the table needs for admitted contributions.
  static uint64_t ReservedBytes(const ShardOptions& options, size_t bundles);

  // The number of ranks of the job, present or not.
  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }

  // Records that the rank has a new holder. The new holder has not received any result and has no
  // stream. Its predecessor may have contributed up to `last_step`.
  void Replace(uint32_t rank, uint64_t last_step);
  // True if an earlier holder of the rank may have contributed to the request's step.
  bool MayBeInherited(const protocol::ExchangeRequest& exchange) const {
    return exchange.step <= ranks_[exchange.sender.rank].inherited;
  }

  // Records the step of a request of the rank that comes too early.
  void NoteStep(uint32_t rank, uint64_t step);
  // Returns the highest step of the selected ranks' present holders, in valid requests and in those
  // that came too early. A holder that was replaced does not count, so that its error ends with it.
  uint64_t FurthestStep(Selects selects) const;
  // Records the step of a valid request of the rank.
  void Reach(uint32_t rank, uint64_t step);
  // Returns the lowest of `at_most` and the highest requested steps of the selected ranks.
  uint64_t LowestReached(uint64_t at_most, Selects selects) const;
  // Records that the rank's holder has the results of all steps up to `step`. Returns false if that
  // was known.
  bool Acknowledge(uint32_t rank, uint64_t step);
  uint64_t acked(uint32_t rank) const { return ranks_[rank].acked; }
  // Returns the lowest acknowledged step of the selected ranks, or nothing if none is selected. If
  // the lowest step is at most `known`, may return any step up to `known` instead, which takes less
  // time.
  std::optional<uint64_t> LowestAcked(Selects selects, uint64_t known = 0) const;

  // Returns true if a contribution of this size needs no answer yet: its sender got an answer on
  // the same stream before, and the rank's unanswered bytes stay within
  // ShardOptions::unanswered_bytes.
  bool MayStayUnanswered(uint32_t rank, StreamId stream, uint64_t bytes) const;
  void AddUnanswered(uint32_t rank, uint64_t bytes) { ranks_[rank].unanswered += bytes; }
  // Records that a result answers these bytes.
  void RemoveUnanswered(uint32_t rank, uint64_t bytes) { ranks_[rank].unanswered -= bytes; }
  // Records the stream of an answer to a contribution of the rank.
  void NoteAnswer(uint32_t rank, StreamId stream) { ranks_[rank].answered = stream; }

  // With a quorum only.
  Admitted admitted(uint32_t bundle, uint32_t rank) const { return admitted_[bundle][rank]; }
  void SetAdmitted(uint32_t bundle, uint32_t rank, Admitted last) {
    admitted_[bundle][rank] = last;
  }

 private:
  struct Rank {
    StreamId answered = 0;    // The stream of the last answer to this rank.
    uint64_t unanswered = 0;  // Bytes; see ShardOptions::unanswered_bytes.
    uint64_t acked = 0;       // Highest step that the present holder has acknowledged.
    uint64_t reached = 0;     // Highest step in a valid request of the present holder.
    uint64_t furthest = 0;    // Also counts the present holder's requests that came too early.
    uint64_t inherited = 0;   // An earlier holder may have contributed up to this step.
  };

  const ShardOptions& options_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Admitted>> admitted_;  // By bundle and rank; empty without a quorum.
};

}  // namespace sluice::server
