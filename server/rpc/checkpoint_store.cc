// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/checkpoint_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "net/grpc/grpc_status.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/durable_file.h"
#include "protocol/part_rights.h"
#include "protocol/wire/common_messages.h"

namespace sluice::server {
namespace {

constexpr size_t kMessageContentMax = 1 << 20;
constexpr size_t kPieceBytes = 512 << 10;     // Maximum content of one sent message.
constexpr uint32_t kServerRank = 0xFFFFFFFF;  // Stands for all servers that read parts.

// Returns true if the error concerns the call. Other errors come from the disk and concern the
// part.
bool IsOfCall(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsInvalidArgument(status) ||
         absl::IsFailedPrecondition(status) || absl::IsCancelled(status);
}

// Makes sure that a disk error counts as an error of the part: changes a code that would concern
// the call to UNAVAILABLE.
absl::Status DiskError(const absl::Status& status) {
  return IsOfCall(status) ? absl::UnavailableError(status.message()) : status;
}

// Returns OK if the folder's parts belong to the run. A server asks before the shards have started,
// so no shard can fence the request.
absl::Status CheckRun(const std::string& folder, uint64_t job_uid) {
  const absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(folder);
  // DATA_LOSS would mean a damaged part, and the job would go back to an earlier checkpoint.
  if (absl::IsDataLoss(record.status())) {
    return absl::FailedPreconditionError(record.status().message());
  }
  if (!record.ok()) return record.status();
  if (record->job_uid == job_uid) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(folder, " holds parts of another run"));
}

absl::Status Append(const v1::PutPartRequest& message, uint64_t* received,
                    const protocol::CheckpointPart& part, protocol::DurableFile* file) {
  *received += message.content().size();
  if (message.content().size() > kMessageContentMax || *received > part.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(part.name, " was announced with ", part.bytes,
                     " bytes in messages of at most ", kMessageContentMax, "; this one has ",
                     message.content().size(), ", ", *received, " in total"));
  }
  return file->Append(message.content());
}

}  // namespace

// Counts a transfer against the limits while it exists. If the transfer may not begin, status() is
// an error.
class CheckpointStore::Transfer {
 public:
  // `path` can have only one writer. An empty path means that the transfer only reads. The caller
  // has checked that the sender holds `rank`.
  Transfer(CheckpointStore* store, std::string path, uint32_t rank)
      : store_(store), path_(std::move(path)), of_rank_(rank, path_.empty()) {
    MutexLock lock(&store_->mutex_);
    if (store_->transfers_ >= store_->options_.transfers_max) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat("shard ", store_->options_.shard, " has ", store_->transfers_,
                       " parts of checkpoints in progress; try again"));
    } else if (store_->of_rank_[of_rank_] >= store_->options_.transfers_of_rank_max) {
      status_ = absl::ResourceExhaustedError(absl::StrCat(
          "rank ", of_rank_.first, " has ", store_->options_.transfers_of_rank_max,
          " parts of checkpoints in progress to shard ", store_->options_.shard, "; try again"));
    } else if (!path_.empty() && !store_->under_way_.insert(path_).second) {
      status_ = absl::AbortedError(absl::StrCat(path_, " is being written; try again"));
    } else {
      ++store_->transfers_;
      ++store_->of_rank_[of_rank_];
    }
  }
  ~Transfer() {
    if (!status_.ok()) return;
    MutexLock lock(&store_->mutex_);
    store_->under_way_.erase(path_);
    --store_->transfers_;
    --store_->of_rank_[of_rank_];
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  CheckpointStore* const store_;
  const std::string path_;
  const std::pair<uint32_t, bool> of_rank_;
  absl::Status status_;
};

// Counts a call before its first read, because the read blocks a thread.
class CheckpointStore::Unnamed {
 public:
  explicit Unnamed(CheckpointStore* store) : store_(store) {
    MutexLock lock(&store_->mutex_);
    fits_ = store_->unnamed_ < store_->options_.unnamed_max;
    if (fits_) ++store_->unnamed_;
  }
  ~Unnamed() {
    if (!fits_) return;
    MutexLock lock(&store_->mutex_);
    --store_->unnamed_;
  }
  Unnamed(const Unnamed&) = delete;
  Unnamed& operator=(const Unnamed&) = delete;

  bool fits() const { return fits_; }

 private:
  CheckpointStore* const store_;
  bool fits_ = false;
};

// A client that accepts no bytes also blocks its reply, and the thread that sends it. gRPC sends
// the reply of a synchronous client-streaming method after the method has returned, where nothing
// can limit the time. As a bidirectional streaming method, PutPart sends its only reply itself. The
// bytes on the wire are the same.
CheckpointStore::CheckpointStore(Options options, const ShardHost* host,
                                 std::shared_ptr<const net::Transport> transport, Logger logger)
    : options_(std::move(options)),
      folder_(protocol::PartsFolder(options_.dir, options_.shard)),
      host_(host),
      transport_(std::move(transport)),
      logger_(std::move(logger)) {
  constexpr int kPutPart = 0;  // Its position in checkpoint_store.proto.
  using Handler =
      grpc::internal::BidiStreamingHandler<CheckpointStore, v1::PutPartRequest, v1::PutPartReply>;
  MarkMethodStreamed(kPutPart,
                     new Handler([](CheckpointStore* store, grpc::ServerContext* context,
                                    PutStream* stream) { return store->Put(context, stream); },
                                 this));
}

grpc::Status CheckpointStore::LetIn(const grpc::ServerContext& context, net::Method method) const {
  grpc::Status may = transport_->MayCall(context, method);
  if (may.ok() && options_.on_member) options_.on_member(context.peer());
  return may;
}

bool CheckpointStore::ReadFirst(grpc::ServerContext* context, PutStream* stream,
                                v1::PutPartRequest* first) {
  const ClientPatience::Waiting waiting(&calls_, context, options_.first_patience);
  // The client waits for the metadata before it sends the part.
  stream->SendInitialMetadata();
  return stream->Read(first);
}

grpc::Status CheckpointStore::Put(grpc::ServerContext* context, PutStream* stream) {
  if (const grpc::Status may = LetIn(*context, net::Method::kPutPart); !may.ok()) return may;
  v1::PutPartRequest first;
  {
    const Unnamed unnamed(this);
    if (!unnamed.fits()) {
      return net::ToGrpc(absl::ResourceExhaustedError(
          absl::StrCat("shard ", options_.shard, " has ", options_.unnamed_max,
                       " calls that have not named their part yet; try again")));
    }
    if (!ReadFirst(context, stream, &first)) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "no part was sent"};
    }
  }
  const protocol::Sender sender = protocol::SenderFromProto(first.sender());
  protocol::CheckpointPart part = protocol::CheckedPartFromProto(first.part());
  part.file.clear();  // The store chooses the file.
  const absl::Status valid = CheckNow(sender, part);
  if (!valid.ok()) {
    logger_.Debug("refused a part of rank ", sender.rank, ": ", valid.message());
    return net::ToGrpc(valid);
  }
  const Transfer transfer(this, protocol::PartPath(folder_, part), sender.rank);
  if (!transfer.status().ok()) return net::ToGrpc(transfer.status());
  absl::StatusOr<protocol::CheckpointPart> done = Receive(sender, part, context, stream);
  if (!done.ok() && IsOfCall(done.status())) return net::ToGrpc(done.status());
  if (!done.ok()) {
    part.error =
        absl::StrCat("shard ", options_.shard, " cannot store it: ", done.status().message());
    logger_.Warning("no part ", part.name, " of the checkpoint after step ", part.step, ": ",
                    done.status().message());
  }
  v1::PutPartReply reply;
  protocol::PartToProto(done.ok() ? *done : part, reply.mutable_part());
  const ClientPatience::Waiting waiting(&calls_, context, options_.patience);
  return stream->Write(reply)
             ? grpc::Status::OK
             : grpc::Status(grpc::StatusCode::CANCELLED, "the client did not read the reply");
}

absl::Status CheckPut(const protocol::Sender& sender, const protocol::CheckpointPart& part,
                      uint64_t part_bytes_max) {
  // An invalid name arrives cut and with an error.
  if (!part.error.empty()) return absl::InvalidArgumentError(part.error);
  const absl::Status valid = protocol::CheckPartName(part.name);
  if (!valid.ok()) return valid;
  if (part.term != sender.term || part.step == 0 || !protocol::MayWritePart(sender.rank, part)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", sender.rank, " of term ", sender.term,
                                                   " may not write ", part.name, " after step ",
                                                   part.step, " of term ", part.term));
  }
  if (part.bytes <= part_bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      part.name, " has ", part.bytes, " bytes; a shard stores at most ", part_bytes_max));
}

absl::Status CheckpointStore::CheckNow(const protocol::Sender& sender,
                                       const protocol::CheckpointPart& part) const {
  absl::Status valid = CheckPut(sender, part, options_.part_bytes_max);
  if (valid.ok()) valid = host_->CheckSender(sender);
  return valid.ok() ? host_->CheckPartStep(part.step) : valid;
}

absl::StatusOr<protocol::CheckpointPart> CheckpointStore::Receive(const protocol::Sender& sender,
                                                                  protocol::CheckpointPart part,
                                                                  grpc::ServerContext* context,
                                                                  PutStream* stream) {
  absl::Status status = host_->ClaimFolder();
  if (status.ok()) status = protocol::MakeFolder(protocol::StepFolder(folder_, part.step));
  if (!status.ok()) return DiskError(status);
  absl::StatusOr<protocol::DurableFile> file =
      protocol::DurableFile::Create(protocol::PartPath(folder_, part));
  if (!file.ok()) return file.status();
  uint64_t received = 0;
  v1::PutPartRequest message;
  const auto read = [&] {
    const ClientPatience::Waiting waiting(&calls_, context, options_.patience);
    return stream->Read(&message);
  };
  while (read()) {
    status = Append(message, &received, part, &*file);
    if (!status.ok()) return status;
  }
  if (received != part.bytes || file->checksum() != part.checksum) {
    return absl::AbortedError(absl::StrCat(part.name, " did not arrive completely: ", received,
                                           " of ", part.bytes, " bytes; send it again"));
  }
  // The job may have rolled back during the transfer.
  status = host_->CheckSender(sender);
  if (!status.ok()) return absl::FailedPreconditionError(status.message());
  status = protocol::Publish(*std::move(file), &part);
  if (!status.ok()) return status;
  part.server = options_.shard;
  part.error.clear();
  return part;
}

grpc::Status CheckpointStore::GetPart(grpc::ServerContext* context,
                                      const v1::GetPartRequest* request,
                                      grpc::ServerWriter<v1::GetPartReply>* writer) {
  if (const grpc::Status may = LetIn(*context, net::Method::kGetPart); !may.ok()) return may;
  const protocol::Sender sender = protocol::SenderFromProto(request->sender());
  const protocol::CheckpointPart part = protocol::CheckedPartFromProto(request->part());
  absl::Status valid = protocol::CheckPartNames(part);
  if (valid.ok()) {
    valid = request->for_server()
                ? CheckRun(protocol::PartsFolder(options_.dir, part.server), sender.job_uid)
                : host_->CheckSender(sender);
  }
  if (!valid.ok()) return net::ToGrpc(valid);
  const Transfer transfer(this, "", request->for_server() ? kServerRank : sender.rank);
  if (!transfer.status().ok()) return net::ToGrpc(transfer.status());
  return net::ToGrpc(Send(part, context, writer));
}

absl::Status CheckpointStore::Send(const protocol::CheckpointPart& part,
                                   grpc::ServerContext* context,
                                   grpc::ServerWriter<v1::GetPartReply>* writer) {
  const std::string path =
      protocol::PartPath(protocol::PartsFolder(options_.dir, part.server), part);
  const absl::StatusOr<protocol::FileFacts> facts = protocol::StatFile(path);
  // An unreadable part is treated as lost, so that the caller tries an earlier checkpoint.
  if (!facts.ok()) return absl::NotFoundError(facts.status().message());
  if (facts->bytes != part.bytes) {
    return absl::NotFoundError(
        absl::StrCat(path, " has ", facts->bytes, " bytes, not ", part.bytes));
  }
  const absl::Status status = protocol::ReadPieces(path, kPieceBytes, [&](absl::string_view piece) {
    v1::GetPartReply reply;
    reply.set_content(std::string(piece));
    // A client that accepts no bytes blocks the write.
    const ClientPatience::Waiting waiting(&calls_, context, options_.patience);
    return writer->Write(reply) ? absl::OkStatus()
                                : absl::CancelledError("the client stopped reading");
  });
  if (status.ok() || absl::IsCancelled(status)) return status;
  return absl::NotFoundError(status.message());
}

}  // namespace sluice::server
