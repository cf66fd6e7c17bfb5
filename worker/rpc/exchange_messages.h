// Exchanges and answers between plain types and messages, on the worker's side.
#pragma once

#include "absl/status/statusor.h"
#include "job/exchange.h"
#include "job/snapshot.h"
#include "sluice/v1/parameter_shard.pb.h"

namespace sluice {

void SetSender(const Sender& sender, v1::Sender* message);

void SetPart(const CheckpointPart& part, v1::CheckpointPart* message);
CheckpointPart TakePart(const v1::CheckpointPart& message);

// Without the sender, which only a stream's first message carries.
void SetRequest(const Exchange& exchange, v1::ExchangeRequest* message);

// Takes the frames out of `message`. INVALID_ARGUMENT: an outcome that this version does not know.
absl::StatusOr<ExchangeAnswer> TakeAnswer(v1::ExchangeReply* message);

}  // namespace sluice
