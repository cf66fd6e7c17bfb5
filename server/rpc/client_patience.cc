// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/client_patience.h"

#include <grpc/grpc.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::server {

ClientPatience::ClientPatience() : thread_([this] { Run(); }) {}

ClientPatience::~ClientPatience() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

ClientPatience::Waiting::Waiting(ClientPatience* owner, grpc::ServerContext* context,
                                 absl::Duration patience)
    : owner_(owner), context_(context) {
  MutexLock lock(&owner_->mutex_);
  owner_->waiting_[context] = {.until = owner_->clock_.Now() + patience, .patience = patience};
  if (owner_->waiting_.size() == 1) owner_->changed_.SignalAll();
}

ClientPatience::Waiting::~Waiting() {
  MutexLock lock(&owner_->mutex_);
  owner_->waiting_.erase(context_);
}

void ClientPatience::Run() {
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
          absl::StrCat("the client sent or accepted no message for ",
                       absl::FormatDuration(at->second.patience), "; try again")
              .c_str(),
          nullptr);
      at = waiting_.erase(at);
    }
    changed_.WaitFor(&mutex_, pause);
  }
}

}  // namespace sluice::server
