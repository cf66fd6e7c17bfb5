// ShardHost: a shard's core behind one lock, with the streams that its effects go to. Thread-safe.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "job/job_spec.h"
#include "server/core/coordinator.h"
#include "server/core/shard.h"
#include "server/rpc/queued_stream.h"

namespace sluice {

using ExchangeOutput = QueuedStream<grpc::ByteBuffer, grpc::ByteBuffer>;

class ShardHost {
 public:
  struct Options {
    uint32_t shard = 0;
    JobSpec job;
    uint64_t server_incarnation = 0;
    // Told once that the job cannot go on. Called with the host's lock held: must not call back.
    std::function<void(const std::string&)> on_alarm;
  };

  ShardHost(Options options, const Clock* clock, Logger logger);

  // Cuts the table and makes the core. The same job again is OK and changes nothing.
  absl::Status Start(const StartShard& start);
  absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations);
  // Answers everybody FENCED with `reason` from now on.
  void End(absl::string_view reason);
  void Tick();

  // `output` must stay until Closed.
  StreamId Open(ExchangeOutput* output);
  void Closed(StreamId stream);
  void Handle(StreamId stream, Exchange exchange);
  // INVALID for a request that could not even be read as one.
  void Refuse(StreamId stream, uint64_t step, uint32_t bundle, std::string why);
  // As the Pull rpc. `bundles` empty: all.
  absl::StatusOr<std::vector<std::shared_ptr<const ExchangeAnswer>>> Pull(
      const Sender& sender, uint64_t after_step, const std::vector<uint32_t>& bundles);

  bool started() const;
  ShardStats Stats() const;
  double ResidualEnergy() const;
  ShardHealthReport Health() const;
  uint64_t server_incarnation() const { return options_.server_incarnation; }

 private:
  void Deliver(const std::vector<ShardEffect>& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(StreamId stream, const std::shared_ptr<const ExchangeAnswer>& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock* const clock_;
  const Logger logger_;
  mutable Mutex mutex_;
  std::unique_ptr<Shard> shard_ ABSL_GUARDED_BY(mutex_);  // Null before Start.
  std::string ended_ ABSL_GUARDED_BY(mutex_);  // For who comes when nothing ever started.
  std::map<StreamId, ExchangeOutput*> outputs_ ABSL_GUARDED_BY(mutex_);
  StreamId last_stream_ ABSL_GUARDED_BY(mutex_) = 0;
  // The last answer sent and its bytes: a result goes to all ranks but is serialized once.
  std::shared_ptr<const ExchangeAnswer> last_answer_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const grpc::ByteBuffer> last_bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
