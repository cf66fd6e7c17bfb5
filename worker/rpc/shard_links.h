// SPDX-License-Identifier: Apache-2.0
// ShardLinks: keeps a worker's streams to the shards open. It reopens broken streams, follows
// shards to newer processes, and logs what it does. Not thread-safe, but the streams are.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "protocol/membership.h"
#include "protocol/stage_times.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session_options.h"
#include "worker/rpc/shard_link.h"
#include "worker/rpc/shard_stream.h"

namespace sluice::worker {

// By shard.
using ShardStreams = std::vector<std::unique_ptr<ShardStream>>;

// Does not open the streams. `options.clock` must be set, and all arguments must outlive the
// streams.
ShardStreams MakeShardStreams(const RemoteSessionOptions& options, const Membership& membership,
                              ShardStream::Events* events, protocol::StageTimes* stages);

class ShardLinks {
 public:
  // `options` and `streams` must outlive this object.
  ShardLinks(const RemoteSessionOptions& options, const Membership& membership,
             const ShardStreams& streams);

  void Open();
  // Call this when the shard answers on a stream for the first time.
  void StreamUp(uint32_t shard);
  // Takes the incarnation of each answer. Returns kOutdated if a replaced process answered: the
  // caller ignores the answer, and the link connects again. Returns kNewProcess if the answer is
  // the first one of another process.
  enum class Answerer { kKnown, kNewProcess, kOutdated };
  Answerer Answered(uint32_t shard, uint64_t incarnation);
  // Connects to the process at `place`, if it is newer than all processes of the shard that this
  // worker knows. Returns whether it is.
  bool Follow(const protocol::ShardPlace& place);
  // Call this when the stream has ended. Returns an error if the shard is lost or has refused this
  // worker. A worker that is leaving gets no error.
  absl::Status StreamDown(uint32_t shard, const grpc::Status& status, bool leaving);

  void RetryAt(uint32_t shard, absl::Time time) { links_[shard].RetryAt(time); }
  struct Served {
    bool reopened = false;  // The shard has a new stream.
    bool retry = false;     // The time passed to RetryAt has come.
    absl::Status status;    // An error if the shard has been out of reach for too long.
  };
  // Does what is due at `now`, and opens the shard's stream if it is time.
  Served Serve(uint32_t shard, bool leaving, absl::Time now);
  // When Serve has something to do; InfiniteFuture if never.
  absl::Time NextDue() const;

  // Returns the shortest round trip to the most distant shard; infinite until each was measured.
  absl::Duration RoundTrip() const;
  uint32_t size() const { return static_cast<uint32_t>(links_.size()); }
  // The highest incarnation known of each shard.
  std::vector<uint64_t> KnownProcesses() const;

 private:
  void LogAnswer(uint32_t shard) const;
  void Reconnect(uint32_t shard, const std::string& address);
  absl::Status Unreachable(uint32_t shard) const;

  const RemoteSessionOptions& options_;
  const ShardStreams& streams_;
  const absl::Duration patience_;  // How long to retry an unreachable shard.
  std::vector<ShardLink> links_;   // By shard.
};

}  // namespace sluice::worker
