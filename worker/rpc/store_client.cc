// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/store_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/wire/common_messages.h"
#include "worker/core/session.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {
namespace {

constexpr size_t kPieceBytes = 512 << 10;

absl::Status Cancelled() {
  return absl::CancelledError("the session ended during the transfer of a part of a checkpoint");
}

}  // namespace

StoreClient::StoreClient(Options options)
    : options_(std::move(options)),
      shard_count_(static_cast<uint32_t>(options_.shards.size())),
      gate_(options_.clock),
      shards_(options_.shards) {}

void StoreClient::GoTo(uint32_t shard, const std::string& address, uint64_t server_incarnation) {
  MutexLock lock(&mutex_);
  shards_[shard] = {address, server_incarnation};
}

ShardSeat StoreClient::SeatOf(uint32_t shard) const {
  MutexLock lock(&mutex_);
  return shards_[shard];
}

// Opens one connection for each part, because checkpoints are rare.
void StoreClient::Connect(uint32_t shard, Line* line) const {
  const ShardSeat seat = SeatOf(shard);
  if (line->stub != nullptr && line->server_incarnation == seat.server_incarnation) return;
  line->server_incarnation = seat.server_incarnation;
  line->channel = options_.transport->Dial(seat.address);
  line->stub = v1::CheckpointStore::NewStub(line->channel);
}

protocol::Sender StoreClient::SenderTo(uint32_t shard) const {
  protocol::Sender sender = options_.sender;
  sender.server_incarnation = SeatOf(shard).server_incarnation;
  return sender;
}

std::string StoreClient::Place(uint32_t shard) const {
  return absl::StrCat("shard ", shard, " at ", SeatOf(shard).address);
}

absl::StatusOr<protocol::CheckpointPart> StoreClient::Put(uint64_t step, const std::string& name,
                                                          absl::string_view bytes) {
  const uint32_t shard = options_.sender.rank % shard_count_;
  protocol::CheckpointPart part{.term = options_.sender.term,
                                .step = step,
                                .name = name,
                                .bytes = bytes.size(),
                                .checksum = Crc32c(bytes),
                                .error = {},
                                .server = shard};
  v1::PutPartRequest first;
  protocol::SenderToProto(SenderTo(shard), first.mutable_sender());
  protocol::PartToProto(part, first.mutable_part());
  Line line;
  for (absl::Duration backoff = options_.backoff_min;;
       backoff = std::min(2 * backoff, options_.backoff_max)) {
    v1::PutPartReply reply;
    bool cancelled = false;
    Connect(shard, &line);
    const grpc::Status status = TryPut(line.stub.get(), first, bytes, &reply, &cancelled);
    if (cancelled) return Cancelled();
    if (status.ok() && reply.part().error().empty()) {
      part.file = reply.part().file();
      return part;
    }
    if (status.ok()) return absl::ResourceExhaustedError(reply.part().error());
    if (!MayPassOnceLetIn(status)) {
      return ToStatus(status, absl::StrCat(Place(shard), " did not accept ", name),
                      *options_.transport);
    }
    if (!gate_.ConnectFor(backoff, line.channel.get())) return Cancelled();
  }
}

grpc::Status StoreClient::TryPut(v1::CheckpointStore::Stub* stub, const v1::PutPartRequest& first,
                                 absl::string_view bytes, v1::PutPartReply* reply,
                                 bool* cancelled) {
  grpc::ClientContext context;
  if (!gate_.Begin(&context)) {
    *cancelled = true;
    return grpc::Status::CANCELLED;
  }
  const auto writer = stub->PutPart(&context, reply);
  bool open = writer->Write(first);  // If it fails, Finish returns the reason.
  // A server closes a connection that sends a lot of data before its first call begins.
  writer->WaitForInitialMetadata();
  v1::PutPartRequest message;
  while (open && !bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kPieceBytes);
    message.set_content(std::string(piece));
    open = writer->Write(message);
    bytes.remove_prefix(piece.size());
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  *cancelled = !gate_.End(&context);
  return status;
}

absl::StatusOr<std::string> StoreClient::Get(const protocol::CheckpointPart& part,
                                             absl::Duration timeout) {
  const uint32_t shard = protocol::ServerOf(part, shard_count_);
  const std::string where = absl::StrCat(part.name, " of ", Place(shard));
  v1::GetPartRequest request;
  protocol::SenderToProto(SenderTo(shard), request.mutable_sender());
  protocol::PartToProto(part, request.mutable_part());
  Line line;
  const absl::Time until = options_.clock->Now() + timeout;
  for (absl::Duration backoff = options_.backoff_min;;
       backoff = std::min(2 * backoff, options_.backoff_max)) {
    std::string bytes;
    bool cancelled = false;
    Connect(shard, &line);
    const grpc::Status status = TryGet(line.stub.get(), request, &bytes, &cancelled);
    if (cancelled) return Cancelled();
    if (status.ok()) {
      const absl::Status whole = protocol::CheckPartFacts(where, bytes.size(), Crc32c(bytes), part);
      if (!whole.ok()) return whole;
      return bytes;
    }
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
      return absl::DataLossError(absl::StrCat(where, " is lost: ", status.error_message()));
    }
    // The server fenced the request, because the job has rolled back meanwhile.
    if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
        (MayPassOnceLetIn(status) && options_.clock->Now() >= until)) {
      return RollbackError(
          absl::StrCat(where, " cannot be read now: ", Reason(status, *options_.transport)));
    }
    if (!MayPassOnceLetIn(status)) {
      return ToStatus(status, absl::StrCat("reading ", where), *options_.transport);
    }
    if (!gate_.ConnectFor(backoff, line.channel.get())) return Cancelled();
  }
}

grpc::Status StoreClient::TryGet(v1::CheckpointStore::Stub* stub, const v1::GetPartRequest& request,
                                 std::string* bytes, bool* cancelled) {
  grpc::ClientContext context;
  if (!gate_.Begin(&context)) {
    *cancelled = true;
    return grpc::Status::CANCELLED;
  }
  const auto reader = stub->GetPart(&context, request);
  v1::GetPartReply reply;
  bool fits = true;
  while (reader->Read(&reply)) {
    // Bytes beyond the promised size mean damage. Do not allocate memory for them.
    fits = fits && reply.content().size() <= request.part().bytes() - bytes->size();
    if (fits) bytes->append(reply.content());
  }
  const grpc::Status status = reader->Finish();
  *cancelled = !gate_.End(&context);
  if (status.ok() && !fits) return {grpc::StatusCode::NOT_FOUND, "it is larger than expected"};
  return status;
}

}  // namespace sluice::worker
