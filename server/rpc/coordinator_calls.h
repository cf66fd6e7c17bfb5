// SPDX-License-Identifier: Apache-2.0
// CoordinatorCalls: the calls and the control streams of shards that wait for effects of the
// coordinator's core. It gives each of them its answer, and it logs refusals. The host's lock
// guards this object.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "protocol/membership.h"
#include "server/coordinator/coordinator_effects.h"
#include "sluice/v1/shard_control.pb.h"

namespace sluice::server {

// A Join call that waits for an answer. It is answered at most once, with the host's lock held.
class JoinWaiter {
 public:
  virtual ~JoinWaiter() = default;
  virtual void Answer(const absl::StatusOr<protocol::JoinGrant>& grant) = 0;
};

// Receives the step of the durable checkpoint, or the reason why there is none. Called at most
// once, with the host's lock held.
using CheckpointAnswer = std::function<void(const absl::StatusOr<uint64_t>&)>;

// The server's end of one shard's control stream. All methods are called with the host's lock held
// and must not call back.
class CommandOutput {
 public:
  // Sends a message, or drops it if the stream is closing. `size` is its size on the wire.
  virtual void Send(std::shared_ptr<const v1::ShardCommand> message, uint64_t size) = 0;
  virtual void Close(const grpc::Status& status) = 0;

 protected:
  ~CommandOutput() = default;
};

class CoordinatorCalls {
 public:
  explicit CoordinatorCalls(Logger logger) : logger_(std::move(logger)) {}

  // `waiter` must stay valid until it is answered or forgotten.
  JoinToken AddJoin(JoinWaiter* waiter);
  // Returns false if the waiter was already answered.
  bool ForgetJoin(JoinToken token) { return waiters_.erase(token) > 0; }
  CheckpointToken AddRequest(CheckpointAnswer answer);
  // Returns false if the answer was already given.
  bool ForgetRequest(CheckpointToken token) { return requests_.erase(token) > 0; }
  // `output` must stay valid until ForgetStream.
  ControlStreamId AddStream(CommandOutput* output);
  void ForgetStream(ControlStreamId stream) { outputs_.erase(stream); }

  // These methods carry out one effect each. They do nothing if the call or the stream has ended.
  void Answer(const AnswerJoin& answer, absl::Time now);
  void Answer(const AnswerCheckpoint& answer);
  void Send(const CommandShard& command);
  void Refuse(const RefuseShard& refusal, absl::Time now);
  // Answers all waiting calls: the state that they wait for will never be durable. Workers must not
  // join again, so their calls fail with FAILED_PRECONDITION. Requests fail with UNAVAILABLE.
  void FailAll(absl::string_view reason);

 private:
  // Limits these log lines, because a client with the job's credentials can be refused repeatedly.
  void LogRefusal(const LogFields& kind, absl::string_view text, absl::Time now);

  const Logger logger_;
  std::map<JoinToken, JoinWaiter*> waiters_;
  std::map<CheckpointToken, CheckpointAnswer> requests_;
  std::map<ControlStreamId, CommandOutput*> outputs_;
  uint64_t last_id_ = 0;                      // Last token or stream.
  std::map<std::string, LogLimit> refusals_;  // By event.
};

}  // namespace sluice::server
