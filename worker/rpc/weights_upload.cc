// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/weights_upload.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "follow/rpc/update_parts.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/weights_messages.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {

using follow::UpdateLog;

WeightsUpload::WeightsUpload(Options options, follow::WeightsHub* hub, const Clock* clock,
                             Logger logger)
    : options_(std::move(options)),
      hub_(hub),
      logger_(std::move(logger)),
      gate_(clock),
      seat_(options_.seat),
      thread_([this] { Run(); }) {}

WeightsUpload::~WeightsUpload() {
  Cancel();
  thread_.join();
}

void WeightsUpload::GoTo(ShardSeat seat) {
  MutexLock lock(&mutex_);
  seat_ = std::move(seat);
}

bool WeightsUpload::drained() const {
  MutexLock lock(&mutex_);
  return !wanted_;
}

void WeightsUpload::Cancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    woken_.SignalAll();
  }
  gate_.Close();
}

void WeightsUpload::Wake(const std::optional<absl::Status>& end) {
  MutexLock lock(&mutex_);
  awake_ = true;
  last_ = last_ || end.has_value();
  woken_.SignalAll();
}

bool WeightsUpload::AwaitUpdate() {
  MutexLock lock(&mutex_);
  while (!awake_ && !cancelled_) woken_.Wait(&mutex_);
  awake_ = false;
  return !cancelled_;
}

void WeightsUpload::Run() {
  absl::Duration backoff = options_.backoff_min;
  ShardSeat seat;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::WeightsUpload::Stub> stub;
  do {
    {
      MutexLock lock(&mutex_);
      if (stub == nullptr || seat.server_incarnation != seat_.server_incarnation) {
        seat = seat_;
        stub.reset();
      }
      awake_ = last_ = finished_ = false;
    }
    if (stub == nullptr) {
      channel = options_.transport->Dial(seat.address);
      stub = v1::WeightsUpload::NewStub(channel);
    }
    protocol::Sender sender = options_.sender;
    sender.server_incarnation = seat.server_incarnation;
    const grpc::Status status = Call(stub.get(), sender);
    {
      MutexLock lock(&mutex_);
      if (cancelled_) return;
      if (status.ok()) wanted_ = false;  // A call that broke is made again.
      if (status.ok() && finished_) return;
    }
    if (status.ok()) {
      backoff = options_.backoff_min;
    } else if (MayPassOnceLetIn(status) || status.error_code() == grpc::StatusCode::ABORTED) {
      backoff = std::min(2 * backoff, options_.backoff_max);
    } else {
      logger_.Warning("shard ", options_.shard, " does not take weights for followers: ",
                      Reason(status, *options_.transport));
      MutexLock lock(&mutex_);
      wanted_ = false;
      return;
    }
  } while (gate_.ConnectFor(backoff, channel.get()));
}

grpc::Status WeightsUpload::Call(v1::WeightsUpload::StubInterface* stub, protocol::Sender sender) {
  grpc::ClientContext context;
  if (!gate_.Begin(&context)) return grpc::Status::CANCELLED;
  const auto stream = stub->Upload(&context);
  v1::UploadRequest first;
  protocol::SenderToProto(sender, first.mutable_sender());
  first.set_type(protocol::TypeToProto(options_.type));
  v1::UploadReply wanted;
  // If the write or the read fails, Finish returns the reason.
  if (stream->Write(first) && stream->Read(&wanted)) {
    std::optional<follow::WeightsState> have;
    if (wanted.has_have()) {
      absl::StatusOr<follow::WeightsState> state = protocol::StateFromProto(wanted.have());
      if (state.ok()) have = *std::move(state);
    }
    {
      MutexLock lock(&mutex_);
      wanted_ = true;
    }
    SendUpdates(have, stream.get());
    stream->WritesDone();
  }
  grpc::Status status = stream->Finish();
  gate_.End(&context);
  return status;
}

void WeightsUpload::SendUpdates(std::optional<follow::WeightsState> have, Stream* stream) {
  const absl::StatusOr<std::shared_ptr<follow::WeightsChannel>> channel =
      hub_->Enter(this, {.job_uid = options_.sender.job_uid,
                         .shard = options_.shard,
                         .type = options_.type,
                         .have = have});
  if (!channel.ok()) {
    logger_.Warning("followers get no weights: ", channel.status().message());
    return;
  }
  for (;;) {
    // An update may arrive between NextFor and Wake, so `last_` must be read before NextFor.
    bool is_end = false;
    {
      MutexLock lock(&mutex_);
      is_end = last_;
    }
    const UpdateLog::Choice choice = (*channel)->NextFor(have);
    hub_->Poke();  // The follower may wait for an anchor.
    if (choice.next == UpdateLog::Next::kUpdate) {
      if (!Send(*choice.update, stream)) break;
      have = choice.update->result;
      hub_->Received(this, *have, choice.update->bytes.size());
      continue;
    }
    if (is_end && choice.next == UpdateLog::Next::kNothing) {
      MutexLock lock(&mutex_);
      finished_ = true;
      break;
    }
    if (!AwaitUpdate()) break;
  }
  hub_->Leave(this);
}

bool WeightsUpload::Send(const follow::WeightsUpdate& update, Stream* stream) {
  v1::UploadRequest message;
  for (size_t at = 0; at < update.bytes.size();) {
    at = follow::WritePart(update, at, message.mutable_part());
    if (!stream->Write(message)) return false;
  }
  return true;
}

}  // namespace sluice::worker
