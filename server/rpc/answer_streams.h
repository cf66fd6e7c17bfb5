// SPDX-License-Identifier: Apache-2.0
// AnswerStreams: sends a shard's answers to the streams that asked for them. It knows the output
// and the rank of each open stream, and it limits the bytes that may wait on each output. The
// host's lock guards this object.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "protocol/exchange.h"
#include "server/shard/shard.h"

namespace sluice::server {

// The server's end of one worker's stream. All methods are called with the host's lock held and
// must not call back.
class AnswerOutput {
 public:
  // Sends a message, or drops it if the stream is closing. `size` is its size on the wire.
  virtual void Send(std::shared_ptr<const grpc::ByteBuffer> message, uint64_t size) = 0;
  // Sets the limit on the bytes that may wait on this output, for later messages.
  virtual void LimitBytes(uint64_t bytes) = 0;
  virtual void Close(const grpc::Status& status) = 0;

 protected:
  ~AnswerOutput() = default;
};

class AnswerStreams {
 public:
  // Maximum bytes of answers that may wait on one stream before the shard has its part of the job.
  // Later limits are not lower.
  static constexpr uint64_t kBytesMin = 1 << 20;

  // `output` must stay valid until Closed.
  StreamId Open(AnswerOutput* output);
  // Sends nothing more to the stream. Its rank stays known until Forget, because requests of the
  // stream may still wait for the core.
  void Closed(StreamId stream) { outputs_.erase(stream); }
  void Forget(StreamId stream) { ranks_.erase(stream); }

  // Records which rank sends its requests on the stream.
  void SetRank(StreamId stream, uint32_t rank) { ranks_[stream] = rank; }
  // Unset if the stream has sent no request.
  std::optional<uint32_t> RankOf(StreamId stream) const;

  // Sets the limit of each output, including those of later streams.
  void LimitBytes(uint64_t bytes);
  // Sends an answer of the process with number `incarnation`. Has no effect if the stream is
  // closed. An answer that goes to several streams in succession is serialized only once.
  void Send(StreamId stream, const std::shared_ptr<const protocol::ExchangeReply>& answer,
            uint64_t incarnation, absl::Time now);
  // Frees the bytes of the last answer.
  void ForgetAnswer();
  // Has no effect if the stream is closed.
  void Close(StreamId stream, const grpc::Status& status);
  // Ends a stream with ABORTED, because a newer one has its rank. A worker then connects again.
  void EndReplaced(const StreamReplaced& replaced);
  void CloseAll(const grpc::Status& status);

 private:
  std::map<StreamId, AnswerOutput*> outputs_;
  std::map<StreamId, uint32_t> ranks_;  // Streams that sent a request.
  uint64_t bytes_max_ = kBytesMin;
  StreamId last_stream_ = 0;
  // The last answer sent, with its bytes. A result goes to all ranks in succession.
  std::shared_ptr<const protocol::ExchangeReply> last_answer_;
  std::shared_ptr<const grpc::ByteBuffer> last_bytes_;
};

}  // namespace sluice::server
