// SPDX-License-Identifier: Apache-2.0
// ShardLink: the state of a worker's link to one shard: which process serves the shard, when to
// open the stream again, and when to give the shard up. Pure: the caller passes in events and their
// times, and acts on the answers. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::worker {

class ShardLink {
 public:
  struct Options {
    absl::Duration patience;  // How long to retry an unreachable shard.
    // Pause before the stream is opened again; it doubles each time.
    absl::Duration backoff_min;
    absl::Duration backoff_max;
  };
  // The stream is about to be opened to the process with `server_incarnation`.
  ShardLink(const Options& options, absl::Time now, uint64_t server_incarnation);

  // Call this when the shard answers on a new stream, before it is known which process answered.
  // Returns true if the caller logged a loss that is now over.
  bool StreamUp();
  // Call the next three in this order for each answer, with the incarnation that it names.
  // Returns true if a replaced process answered. The caller ignores the answer and cancels the
  // stream.
  bool IsOutdated(uint64_t incarnation);
  // Returns true if the caller logged a loss that is now over.
  bool Answered();
  // Returns true if the answer is the first one of a newer process. 0 names no process.
  bool IsReplaced(uint64_t incarnation);
  // Call this when the coordinator names the process that serves the shard. Returns true if it is
  // newer than all processes that this worker knows. The caller then cancels the stream, and the
  // stream opens again without a pause.
  bool Follow(uint64_t incarnation);

  enum class Loss {
    kRetry,        // The stream opens again later.
    kRetryAndLog,  // The same, and the caller logs the loss, because it is the first one.
    kUnreachable,  // The shard has been silent for too long.
  };
  // Call this when the stream has ended. A worker that is leaving logs no loss.
  Loss StreamDown(absl::string_view reason, bool leaving, absl::Time now);

  void RetryAt(absl::Time time) { retry_at_ = time; }
  struct Due {
    bool reopen = false;  // Open the stream, with newest().
    bool retry = false;   // The time passed to RetryAt has come.
    bool silent = false;  // The shard has not answered for `patience`. True once for each silence.
  };
  Due TakeDue(absl::Time now);
  // When TakeDue will have something; InfiniteFuture if never.
  absl::Time NextDue() const {
    return std::min({reopen_at_, retry_at_, silent_since_ + options_.patience});
  }

  // The highest incarnation known of the shard.
  uint64_t newest() const { return std::max(server_incarnation_, told_incarnation_); }
  // The last problem, for messages.
  const std::string& trouble() const { return trouble_; }

 private:
  const Options options_;
  absl::Time silent_since_;  // InfiniteFuture while the shard answers.
  std::string trouble_ = "no connection";
  bool logged_ = false;  // The caller logged the loss.
  absl::Duration backoff_;
  absl::Time reopen_at_ = absl::InfiniteFuture();
  absl::Time retry_at_ = absl::InfiniteFuture();
  uint64_t server_incarnation_;    // The highest that answered on this link.
  uint64_t told_incarnation_ = 0;  // The highest from the coordinator.
  bool outdated_ = false;          // The last answer had a lower incarnation.
  bool moves_ = false;             // The stream was cancelled to connect to a newer process.
};

}  // namespace sluice::worker
