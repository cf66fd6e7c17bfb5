// SPDX-License-Identifier: Apache-2.0
// QueuedStream: the server's end of a bidirectional stream. It reads continuously and writes from a
// bounded queue. If the peer reads so slowly that the queue is full, the stream ends; the peer must
// open another stream and ask again. Each stream counts all bytes of its own queue, including
// messages that it shares with other streams. The object deletes itself when the call is over.
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

// Limits on the messages of one stream that the peer has not read. One message may always wait.
struct QueueLimits {
  size_t messages = 0;
  uint64_t bytes = 0;
};

template <typename In, typename Out>
class QueuedStream : public grpc::ServerBidiReactor<In, Out> {
 public:
  QueuedStream(grpc::CallbackServerContext* context, const QueueLimits& limits)
      : context_(context), limits_(limits) {}

  // Queues a message. Drops the message if the stream is closing. `size` is the message's size on
  // the wire. Thread-safe.
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
  // Sets the limit for later messages. Thread-safe.
  void LimitBytes(uint64_t bytes) {
    MutexLock lock(&mutex_);
    limits_.bytes = bytes;
  }
  // Closes the stream. Drops the queue if `status` is an error. Thread-safe.
  void Close(const grpc::Status& status) {
    MutexLock lock(&mutex_);
    CloseLocked(status);
  }

 protected:
  // Must be called at the end of the derived class's constructor. Sends the client the initial
  // metadata at once; before that, the client sends nothing large.
  void Begin() {
    MutexLock lock(&mutex_);
    if (closing_) return;
    this->StartSendInitialMetadata();
    this->StartRead(&incoming_);
  }
  // May move from `message`. The next read starts when OnMessage returns.
  virtual void OnMessage(In* message) = 0;
  // The last call to this object. The stream is not used afterwards.
  virtual void OnGone() = 0;
  // Starts the write of a message that waited for another write. Override it to measure writes.
  virtual void WriteNext(const Out* message) { this->StartWrite(message); }

 private:
  // Approximate memory of a message in addition to its bytes: buffers, slices, and the queue entry.
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
      // Otherwise the current write might never end. Unlike TryCancel, this function sends the
      // reason to the peer.
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
    MutexLock lock(&mutex_);
    if (!closing_) this->StartRead(&incoming_);
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
  In incoming_;  // Target of the current read.
  Mutex mutex_;
  QueueLimits limits_ ABSL_GUARDED_BY(mutex_);
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);  // The front message is being written.
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
