// SPDX-License-Identifier: Apache-2.0
// ShardStream: the worker's end of one shard's Exchange stream. It may be opened repeatedly.
// Thread-safe. Events arrive on gRPC's threads while no lock of this process is held, and never
// inside a method call.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/trace_file.h"
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "protocol/link_meter.h"
#include "protocol/stage_times.h"
#include "sluice/v1/parameter_shard.pb.h"

namespace sluice::worker {

class ShardStream {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // Called when the shard answers on a stream for the first time.
    virtual void OnStreamUp(uint32_t shard) = 0;
    virtual void OnReply(uint32_t shard, v1::ExchangeReply* reply) = 0;
    // The stream has ended and may be opened again.
    virtual void OnStreamDown(uint32_t shard, const grpc::Status& status) = 0;
  };

  // `transport`, `events`, `clock`, `stages` and `trace` (null disables the trace) must outlive
  // this object. The first exchange of each stream contains `sender`.
  ShardStream(uint32_t shard, std::string address, const net::Transport& transport,
              const protocol::Sender& sender, Events* events, const Clock* clock,
              protocol::StageTimes* stages, TraceFile* trace = nullptr);
  // Cancels the stream and waits for its last event.
  ~ShardStream();

  // Call only without an open stream: at first, and after OnStreamDown. `server_incarnation` is the
  // highest incarnation seen of the shard. An older instance refuses the stream.
  void Open(uint64_t server_incarnation);
  // Makes the next Open use a new connection to `address`. The current connection leads to a
  // replaced process.
  void GoTo(std::string address);
  // Queues in order. Drops the exchange if the stream is down or breaks; after reopening it, the
  // caller must send the exchange again.
  void Enqueue(std::shared_ptr<const protocol::ExchangeRequest> exchange);
  // Writes the queued exchanges. It is separate from Enqueue so that a caller can fix the order
  // under a lock and copy outside of it.
  void Flush();
  // Call after a step's last result, when the link is idle in both directions. The next request
  // carries `times` of that step and the link measurements to the shard. Sends a probe if the last
  // one is old enough.
  void EndStep(const protocol::LinkReport& times);
  // Adds an accuracy to the next report.
  void Tested(double accuracy);
  void Cancel();
  // Returns true if there is a connection, even if the shard has not answered yet.
  bool Connected() const;
  // Returns true if the shard has begun the current stream. Queued exchanges wait for that.
  bool Begun() const;

  std::string address() const {
    MutexLock lock(&mutex_);
    return address_;
  }
  // Returns the shortest of the last round trips on an idle link, if there was one.
  std::optional<absl::Duration> RoundTrip() const;
  // Bytes of serialized messages with gRPC's prefix, for steps from 1 on.
  uint64_t bytes_up() const { return bytes_up_; }
  uint64_t bytes_down() const { return bytes_down_; }

 private:
  class Call;
  std::shared_ptr<Call> call() const;
  int64_t NowNs() const { return absl::ToUnixNanos(clock_->Now()); }
  // Returns the report for the request that is being written, or nullopt if there is no report.
  std::optional<protocol::LinkReport> TakeReport();
  std::optional<absl::Duration> LeastRoundTrip() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteReply(uint64_t bytes, int64_t came, const v1::ExchangeReply& reply);

  const uint32_t shard_;
  const net::Transport& transport_;
  Events* const events_;
  const Clock* const clock_;
  protocol::StageTimes* const stages_;
  TraceFile* const trace_;
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
  std::atomic<uint64_t> bytes_up_ = 0;
  std::atomic<uint64_t> bytes_down_ = 0;
  mutable Mutex mutex_;
  CondVar ended_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  bool moved_ ABSL_GUARDED_BY(mutex_) = false;  // The channel still leads to the old address.
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Stub> stub_ ABSL_GUARDED_BY(mutex_);
  protocol::Sender sender_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;  // Calls that are not done yet.
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  protocol::LinkMeter meter_ ABSL_GUARDED_BY(mutex_);  // Measures incoming messages.
  // Report of the last step, until it is sent.
  std::optional<protocol::LinkReport> report_ ABSL_GUARDED_BY(mutex_);
  // Accuracy of the last test, until it is sent.
  std::optional<double> tested_ ABSL_GUARDED_BY(mutex_);
  // Time when the last probe was queued; 0 if none was.
  int64_t probed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool probe_is_out_ ABSL_GUARDED_BY(mutex_) = false;
  // Results of the last probes, in nanoseconds.
  std::deque<int64_t> round_trips_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
