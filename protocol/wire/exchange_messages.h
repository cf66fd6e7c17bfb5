// Exchanges and answers between plain types and messages, in both directions.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "absl/status/statusor.h"
#include "protocol/exchange.h"
#include "protocol/link_meter.h"
#include "protocol/snapshot.h"
#include "sluice/v1/parameter_shard.pb.h"

namespace sluice::protocol {

void SetSender(const Sender& sender, v1::Sender* message);

void SetPart(const CheckpointPart& part, v1::CheckpointPart* message);
CheckpointPart TakePart(const v1::CheckpointPart& message);

// A serialized ExchangeRequest that refers to the frames in `exchange`, without copying them.
// `sender`: only a stream's first message carries it; null: left out. `ready_ns`: since when it
// could have been sent, by this side's clock. `link`: only the first after a step; null: left out.
grpc::ByteBuffer RequestBytes(const std::shared_ptr<const Exchange>& exchange, const Sender* sender,
                              uint64_t ready_ns, const LinkReport* link);
// One that only asks for an answer at once.
grpc::ByteBuffer ProbeBytes(uint64_t ready_ns);

// Takes the frames out of `message`. INVALID_ARGUMENT: an outcome that this version does not know.
absl::StatusOr<ExchangeAnswer> TakeAnswer(v1::ExchangeReply* message);

// Frames are moved out of the request. `known` is the sender of the stream's first message, for
// those that leave it out.
absl::StatusOr<Exchange> ExchangeFromProto(const Sender& known, v1::ExchangeRequest* request);

// The same serialized, referring to the results in `answer` without copying them.
// `ready_ns`: since when it can be sent, by this side's clock.
grpc::ByteBuffer ReplyBytes(const std::shared_ptr<const ExchangeAnswer>& answer,
                            uint64_t server_incarnation, uint64_t ready_ns);

// Answers a probe that was here for `held_ns`.
grpc::ByteBuffer ProbeReplyBytes(uint64_t ready_ns, uint64_t held_ns);

Sender SenderFromProto(const v1::Sender& sender);

}  // namespace sluice::protocol
