#include "server/rpc/read_patience.h"

#include <grpc/grpc.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::server {

ReadPatience::ReadPatience() : thread_([this] { Run(); }) {}

ReadPatience::~ReadPatience() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

ReadPatience::Waiting::Waiting(ReadPatience* owner, grpc::ServerContext* context,
                               absl::Duration patience)
    : owner_(owner), context_(context) {
  MutexLock lock(&owner_->mutex_);
  owner_->waiting_[context] = {.until = owner_->clock_.Now() + patience, .patience = patience};
  if (owner_->waiting_.size() == 1) owner_->changed_.SignalAll();
}

ReadPatience::Waiting::~Waiting() {
  MutexLock lock(&owner_->mutex_);
  owner_->waiting_.erase(context_);
}

void ReadPatience::Run() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    absl::Duration pause = waiting_.empty() ? absl::Minutes(1) : absl::Seconds(1);
    const absl::Time now = clock_.Now();
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (now < at->second.until) {
        pause = std::min(pause, at->second.until - now);
        ++at;
        continue;
      }
      // The lock ensures that the call still exists.
      (void)grpc_call_cancel_with_status(
          at->first->c_call(), GRPC_STATUS_ABORTED,
          absl::StrCat("no message arrived for ", absl::FormatDuration(at->second.patience),
                       "; send it again")
              .c_str(),
          nullptr);
      at = waiting_.erase(at);
    }
    changed_.WaitFor(&mutex_, pause);
  }
}

}  // namespace sluice::server
