// SPDX-License-Identifier: Apache-2.0
// CurrentClient: gives other threads access to a worker's current client while the training thread
// replaces it. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "worker/core/job_client.h"

namespace sluice::worker {

class CurrentClient {
 public:
  // Ends the previous client and its session. Only the training thread calls it.
  JobClient* Replace(std::unique_ptr<JobClient> client) {
    MutexLock lock(&mutex_);
    client_ = std::move(client);
    return client_.get();
  }
  void Abandon(absl::string_view reason) {
    MutexLock lock(&mutex_);
    if (client_ != nullptr) client_->Abandon(reason);
  }
  std::optional<SessionFigures> figures() const {
    MutexLock lock(&mutex_);
    return client_ == nullptr ? std::nullopt : client_->figures();
  }

 private:
  mutable Mutex mutex_;
  std::unique_ptr<JobClient> client_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
