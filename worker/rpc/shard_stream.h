// ShardStream: the worker's end of one shard's Exchange stream, which may be opened again and
// again. Thread-safe. Events come on gRPC's threads, without a lock of ours held, and never inside
// a call to a method.
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
    // The shard is there: its first sign of life on this stream.
    virtual void OnStreamUp(uint32_t shard) = 0;
    virtual void OnReply(uint32_t shard, v1::ExchangeReply* reply) = 0;
    // The stream is gone; it may be opened again.
    virtual void OnStreamDown(uint32_t shard, const grpc::Status& status) = 0;
  };

  // `transport`, `events`, `clock`, `stages` and `trace` (null: none is written) must outlive this.
  // `sender` opens each stream.
  ShardStream(uint32_t shard, std::string address, const net::Transport& transport,
              const protocol::Sender& sender, Events* events, const Clock* clock,
              protocol::StageTimes* stages, TraceFile* trace = nullptr);
  // Cancels the stream and waits for its last event.
  ~ShardStream();

  // Only when there is none: at first, and after OnStreamDown. `server_incarnation` is the highest
  // that was seen of the shard: an instance before it refuses.
  void Open(uint64_t server_incarnation);
  // The next Open goes to `address` over a new connection: the present one leads to a process that
  // was replaced.
  void GoTo(std::string address);
  // In order. Dropped if the stream is down or goes down: whoever opens it again repeats.
  void Enqueue(std::shared_ptr<const protocol::Exchange> exchange);
  // Writes what was enqueued; apart from Enqueue, so that order can be fixed under a lock and
  // copying done outside.
  void Flush();
  // After a step's last result: the link is idle both ways. `times` of that step go to the shard
  // with the next request, with what was measured of the link; a probe is sent, not too often.
  void EndStep(const protocol::LinkReport& times);
  // Goes with the next report.
  void Tested(double accuracy);
  void Cancel();
  // True if there is a connection, whether or not the shard has said anything yet.
  bool Connected() const;

  std::string address() const {
    MutexLock lock(&mutex_);
    return address_;
  }
  // Serialized messages with gRPC's prefix, of steps from 1 on.
  uint64_t bytes_up() const { return bytes_up_; }
  uint64_t bytes_down() const { return bytes_down_; }

 private:
  class Call;
  std::shared_ptr<Call> call() const;
  int64_t NowNs() const { return absl::ToUnixNanos(clock_->Now()); }
  // What is to go with the request that is written now, if anything is.
  std::optional<protocol::LinkReport> TakeReport();
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
  bool moved_ ABSL_GUARDED_BY(mutex_) = false;  // The channel does not lead there yet.
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Stub> stub_ ABSL_GUARDED_BY(mutex_);
  protocol::Sender sender_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;  // Not done yet.
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  protocol::LinkMeter meter_ ABSL_GUARDED_BY(mutex_);  // Of what comes.
  std::optional<protocol::LinkReport> report_
      ABSL_GUARDED_BY(mutex_);                            // Of the last step; not sent yet.
  std::optional<double> tested_ ABSL_GUARDED_BY(mutex_);  // Likewise.
  int64_t probed_ ABSL_GUARDED_BY(mutex_) = 0;  // When a probe was handed over last; 0: none was.
  bool probe_is_out_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<int64_t> round_trips_ ABSL_GUARDED_BY(mutex_);  // Of the last probes, nanoseconds.
};

}  // namespace sluice::worker
