// QueuedStream: the server's end of a bidirectional stream that reads without pause and writes from
// a bounded queue. Deletes itself when the call is over. A peer that reads too slowly loses its
// stream when the queue is full; it opens another and asks again.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace sluice {

template <typename In, typename Out>
class QueuedStream : public grpc::ServerBidiReactor<In, Out> {
 public:
  QueuedStream(grpc::CallbackServerContext* context, size_t queue_max)
      : context_(context), queue_max_(queue_max) {}

  // Thread-safe. Dropped once the stream is closing.
  void Send(std::shared_ptr<const Out> message) {
    MutexLock lock(&mutex_);
    if (closing_) return;
    if (queue_.size() >= queue_max_) {
      CloseLocked({grpc::StatusCode::RESOURCE_EXHAUSTED, "answers are not read fast enough"});
      return;
    }
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) this->StartWrite(queue_.front().get());
  }
  // Thread-safe. What is queued is dropped when `status` is an error.
  void Close(const grpc::Status& status) {
    MutexLock lock(&mutex_);
    CloseLocked(status);
  }

 protected:
  // Call at the end of the derived class's constructor.
  void StartReading() {
    MutexLock lock(&mutex_);
    if (!closing_) this->StartRead(&incoming_);
  }
  // `message` may be consumed. The next read starts when it returns.
  virtual void OnMessage(In* message) = 0;
  // The last call: nothing of the stream is used afterwards.
  virtual void OnGone() = 0;
  // Starts writing what waited for a write to end; whoever wants to measure it wraps it.
  virtual void WriteNext(const Out* message) { this->StartWrite(message); }

 private:
  void CloseLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closing_) return;
    closing_ = true;
    status_ = status;
    if (queue_.empty()) {
      this->Finish(status_);
    } else if (!status.ok()) {
      context_->TryCancel();  // The write under way may never end by itself.
    }
  }
  void OnReadDone(bool ok) final {
    if (!ok) {
      Close(grpc::Status::OK);
      return;
    }
    OnMessage(&incoming_);
    StartReading();
  }
  void OnWriteDone(bool ok) final {
    MutexLock lock(&mutex_);
    queue_.pop_front();
    if (!ok || (closing_ && !status_.ok())) {
      queue_.clear();
      if (!closing_) status_ = grpc::Status::CANCELLED;
      closing_ = true;
    }
    if (!queue_.empty()) {
      WriteNext(queue_.front().get());
    } else if (closing_) {
      this->Finish(status_);
    }
  }
  void OnDone() final {
    OnGone();
    delete this;
  }

  grpc::CallbackServerContext* const context_;
  const size_t queue_max_;
  In incoming_;  // Of the one read under way.
  Mutex mutex_;
  std::deque<std::shared_ptr<const Out>> queue_
      ABSL_GUARDED_BY(mutex_);  // The front is being written.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
