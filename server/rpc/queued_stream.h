// QueuedStream: the server's end of a bidirectional stream that reads without pause and writes from
// a bounded queue. Deletes itself when the call is over. A peer that reads too slowly loses its
// stream when the queue is full; it opens another and asks again. The queue's bytes are counted for
// each stream: messages that several streams share count in every one of them.
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace sluice::server {

// Of the messages of one stream that its peer has not taken. One message may always wait.
struct QueueLimits {
  size_t messages = 0;
  uint64_t bytes = 0;
};

template <typename In, typename Out>
class QueuedStream : public grpc::ServerBidiReactor<In, Out> {
 public:
  QueuedStream(grpc::CallbackServerContext* context, const QueueLimits& limits)
      : context_(context), limits_(limits) {}

  // Thread-safe. Dropped once the stream is closing. `size`: its bytes as they are sent.
  void Send(std::shared_ptr<const Out> message, uint64_t size) {
    MutexLock lock(&mutex_);
    if (closing_) return;
    const uint64_t bytes = size + kMessageOverhead;
    if (!queue_.empty() &&
        (queue_.size() >= limits_.messages || queued_bytes_ + bytes > limits_.bytes)) {
      CloseLocked({grpc::StatusCode::RESOURCE_EXHAUSTED,
                   absl::StrCat("answers are not read fast enough: ", queue_.size(), " of them, ",
                                queued_bytes_, " bytes, wait for this stream, and one more of ",
                                bytes, "; the limit is ", limits_.messages, " answers and ",
                                limits_.bytes, " bytes. Open another stream and ask again")});
      return;
    }
    queued_bytes_ += bytes;
    queue_.push_back({std::move(message), bytes});
    if (queue_.size() == 1) this->StartWrite(queue_.front().message.get());
  }
  // Thread-safe. For the messages to come.
  void LimitBytes(uint64_t bytes) {
    MutexLock lock(&mutex_);
    limits_.bytes = bytes;
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
  // What a message takes beside its bytes, roughly: buffers, slices, its place in the queue.
  static constexpr uint64_t kMessageOverhead = 256;

  struct Queued {
    std::shared_ptr<const Out> message;
    uint64_t bytes = 0;
  };

  void CloseLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closing_) return;
    closing_ = true;
    status_ = status;
    if (queue_.empty()) {
      this->Finish(status_);
    } else if (!status.ok()) {
      // The write under way may never end by itself. Unlike TryCancel, this tells the peer why.
      (void)grpc_call_cancel_with_status(context_->c_call(),
                                         static_cast<grpc_status_code>(status.error_code()),
                                         status.error_message().c_str(), nullptr);
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
    queued_bytes_ -= queue_.front().bytes;
    queue_.pop_front();
    if (!ok || (closing_ && !status_.ok())) {
      queue_.clear();
      queued_bytes_ = 0;
      if (!closing_) status_ = grpc::Status::CANCELLED;
      closing_ = true;
    }
    if (!queue_.empty()) {
      WriteNext(queue_.front().message.get());
    } else if (closing_) {
      this->Finish(status_);
    }
  }
  void OnDone() final {
    OnGone();
    delete this;
  }

  grpc::CallbackServerContext* const context_;
  In incoming_;  // Of the one read under way.
  Mutex mutex_;
  QueueLimits limits_ ABSL_GUARDED_BY(mutex_);
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);  // The front is being written.
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
