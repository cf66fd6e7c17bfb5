// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/shard_link.h"

#include <utility>

namespace sluice::worker {

ShardLink::ShardLink(const Options& options, absl::Time now, uint64_t server_incarnation)
    : options_(options),
      silent_since_(now),
      backoff_(options.backoff_min),
      server_incarnation_(server_incarnation) {}

bool ShardLink::StreamUp() {
  // The stream may have reached the replaced process again; only an answer shows that it has not.
  return !outdated_ && Answered();
}

bool ShardLink::IsOutdated(uint64_t incarnation) {
  if (incarnation == 0 || incarnation >= newest()) return false;
  outdated_ = true;
  trouble_ = "the process there was replaced by a newer one";
  return true;
}

bool ShardLink::Answered() {
  outdated_ = false;
  silent_since_ = absl::InfiniteFuture();
  backoff_ = options_.backoff_min;
  return std::exchange(logged_, false);
}

bool ShardLink::IsReplaced(uint64_t incarnation) {
  if (incarnation <= server_incarnation_) return false;
  server_incarnation_ = incarnation;
  return true;
}

bool ShardLink::Follow(uint64_t incarnation) {
  if (incarnation <= newest()) return false;
  told_incarnation_ = incarnation;
  moves_ = true;
  return true;
}

ShardLink::Loss ShardLink::StreamDown(absl::string_view reason, bool leaving, absl::Time now) {
  if (std::exchange(moves_, false)) {
    reopen_at_ = now;
    return Loss::kRetry;
  }
  // The broken connection follows from the answer of the replaced process.
  if (!outdated_) trouble_ = std::string(reason);
  silent_since_ = std::min(silent_since_, now);
  if (now - silent_since_ >= options_.patience) return Loss::kUnreachable;
  reopen_at_ = now + backoff_;
  backoff_ = std::min(2 * backoff_, options_.backoff_max);
  // Shards may exit before a leaving worker learns that the job has finished.
  if (leaving || std::exchange(logged_, true)) return Loss::kRetry;
  return Loss::kRetryAndLog;
}

ShardLink::Due ShardLink::TakeDue(absl::Time now) {
  Due due;
  if (now >= reopen_at_) {
    reopen_at_ = absl::InfiniteFuture();
    moves_ = false;
    due.reopen = true;
  }
  if (now >= retry_at_) {
    retry_at_ = absl::InfiniteFuture();
    due.retry = true;
  }
  if (now >= silent_since_ + options_.patience) {
    silent_since_ = absl::InfiniteFuture();
    due.silent = true;
  }
  return due;
}

}  // namespace sluice::worker
