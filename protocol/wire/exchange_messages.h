// SPDX-License-Identifier: Apache-2.0
// Conversion of exchanges and answers between plain types and messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "absl/status/statusor.h"
#include "protocol/exchange.h"
#include "protocol/link_meter.h"
#include "sluice/v1/parameter_shard.pb.h"

namespace sluice::protocol {

// Returns a serialized ExchangeRequest that refers to the frames in `exchange` without copying
// them. Only a stream's first message carries `sender`; null omits it. `ready_ns` is the time at
// which the message was ready to be sent, by this side's clock. Only the first message after a step
// carries `link`; null omits it.
grpc::ByteBuffer ExchangeRequestToBytes(const std::shared_ptr<const ExchangeRequest>& exchange,
                                        const Sender* sender, uint64_t ready_ns,
                                        const LinkReport* link);
// Returns a request that only asks for an immediate answer.
grpc::ByteBuffer ProbeBytes(uint64_t ready_ns);

// Converts a reply and moves the frames out of `message`. Fails with INVALID_ARGUMENT if this
// version does not know the outcome.
absl::StatusOr<ExchangeReply> ExchangeReplyFromProto(v1::ExchangeReply* message);

// Converts a request and moves the frames out of `message`. `known` is the sender in the stream's
// first message; it applies to messages that omit the sender.
absl::StatusOr<ExchangeRequest> ExchangeRequestFromProto(const Sender& known,
                                                         v1::ExchangeRequest* request);

// Returns a serialized ExchangeReply that refers to the results in `answer` without copying them.
// `ready_ns` is the time at which the message was ready to be sent, by this side's clock.
grpc::ByteBuffer ExchangeReplyToBytes(const std::shared_ptr<const ExchangeReply>& answer,
                                      uint64_t server_incarnation, uint64_t ready_ns);

// Returns the answer to a probe that waited on this side for `held_ns` nanoseconds.
grpc::ByteBuffer ProbeReplyBytes(uint64_t ready_ns, uint64_t held_ns);

}  // namespace sluice::protocol
