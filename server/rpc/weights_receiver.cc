// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/weights_receiver.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "follow/rpc/update_parts.h"
#include "net/grpc/grpc_status.h"
#include "protocol/weights.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/weights_messages.h"

namespace sluice::server {
namespace {

// Time until a waiting call notices that its client has gone or that the job has rolled back.
constexpr absl::Duration kWaitSlice = absl::Seconds(1);

}  // namespace

WeightsReceiver::WeightsReceiver(Options options, follow::WeightsHub* hub,
                                 const WeightsSource* source, const ShardHost* host,
                                 std::shared_ptr<const net::Transport> transport)
    : options_(std::move(options)),
      hub_(hub),
      source_(source),
      host_(host),
      transport_(std::move(transport)) {}

absl::Status WeightsReceiver::CheckSender(const protocol::Sender& sender) const {
  if (sender.rank != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", sender.rank, " may not upload weights; only rank 0 does"));
  }
  return host_->CheckSender(sender);
}

grpc::Status WeightsReceiver::Upload(grpc::ServerContext* context, Stream* stream) {
  const grpc::Status may = transport_->MayCall(*context, net::Method::kUploadWeights);
  if (!may.ok()) return may;
  if (options_.on_member) options_.on_member(context->peer());
  {
    MutexLock lock(&mutex_);
    if (calls_ >= options_.calls_max) {
      return net::ToGrpc(absl::ResourceExhaustedError(absl::StrCat(
          "shard ", options_.shard, " has ", calls_, " uploads of weights; try again")));
    }
    ++calls_;
  }
  const absl::Status received = Receive(context, stream);
  MutexLock lock(&mutex_);
  --calls_;
  return net::ToGrpc(received);
}

absl::Status WeightsReceiver::Receive(grpc::ServerContext* context, Stream* stream) {
  v1::UploadRequest first;
  {
    const ClientPatience::Waiting waiting(&patience_, context, options_.first_patience);
    if (!stream->Read(&first)) return absl::InvalidArgumentError("no type was named");
  }
  const protocol::Sender sender = protocol::SenderFromProto(first.sender());
  if (absl::Status valid = CheckSender(sender); !valid.ok()) return valid;
  const std::optional<compress::ElementType> type = protocol::TypeFromProto(first.type());
  const std::vector<compress::ElementType> types = hub_->types();
  if (!type.has_value() || std::find(types.begin(), types.end(), *type) == types.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("type ", first.type(), " is not offered to followers (followers.types)"));
  }
  const absl::StatusOr<protocol::WeightsDescription> job = source_->Describe();
  if (!job.ok()) return job.status();
  const absl::StatusOr<follow::ModelParts> parts = protocol::PartsOfWeights(*job);
  if (!parts.ok()) return parts.status();
  while (!hub_->AwaitReader(options_.shard, *type, kWaitSlice)) {
    if (context->IsCancelled()) return absl::CancelledError("the worker has gone");
    if (absl::Status valid = CheckSender(sender); !valid.ok()) return valid;
  }
  v1::UploadReply reply;
  const std::optional<follow::WeightsState> have = hub_->StateToContinue(options_.shard, *type);
  if (have.has_value()) protocol::StateToProto(*have, reply.mutable_have());
  if (!stream->Write(reply)) return absl::CancelledError("the worker has gone");
  return ReceiveUpdates(sender, *type, follow::LargestUpdate(*parts, options_.shard, *type),
                        stream);
}

absl::Status WeightsReceiver::ReceiveUpdates(const protocol::Sender& sender,
                                             compress::ElementType type, uint64_t update_bytes_max,
                                             Stream* stream) {
  follow::UpdateParts parts(update_bytes_max);
  v1::UploadRequest message;
  while (stream->Read(&message)) {
    if (absl::Status added = parts.Add(message.part()); !added.ok()) return added;
    if (!parts.complete()) continue;
    // The job may have rolled back during the transfer.
    if (absl::Status valid = CheckSender(sender); !valid.ok()) return valid;
    if (message.part().term() != sender.term) {
      return absl::InvalidArgumentError(absl::StrCat("an update of term ", message.part().term(),
                                                     " from a sender of term ", sender.term));
    }
    // An update that does not fit ends the call. The next one begins with an anchor.
    if (!hub_->Repeat(options_.shard, type, sender.term, parts.Take())) {
      return absl::AbortedError("an update did not continue the one before it");
    }
    if (!hub_->AwaitReader(options_.shard, type, absl::ZeroDuration())) return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace sluice::server
