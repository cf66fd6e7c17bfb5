// CurrentSession: gives other threads access to a worker's current session while the training
// thread replaces it. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "worker/core/session.h"

namespace sluice::worker {

class CurrentSession {
 public:
  // Ends the previous session. Only the training thread calls it.
  Session* Replace(std::unique_ptr<Session> session) {
    MutexLock lock(&mutex_);
    session_ = std::move(session);
    return session_.get();
  }
  void Abandon(absl::string_view reason) {
    MutexLock lock(&mutex_);
    if (session_ != nullptr) session_->Abandon(reason);
  }
  std::optional<SessionFigures> figures() const {
    MutexLock lock(&mutex_);
    return session_ == nullptr ? std::nullopt : session_->figures();
  }

 private:
  mutable Mutex mutex_;
  std::unique_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
