// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/remote_client.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "protocol/membership.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"
#include "protocol/wire/membership_messages.h"
#include "sluice/v1/coordinator.pb.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session.h"
#include "worker/rpc/session_restore.h"

namespace sluice::worker {
namespace {

// Pause between reports of a part of a checkpoint that a server examines.
constexpr absl::Duration kReportAgain = absl::Milliseconds(500);

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

uint64_t RandomNonce() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

RemoteSessionOptions Completed(RemoteSessionOptions options, const Clock* clock) {
  if (options.nonce == 0) options.nonce = RandomNonce();
  if (options.clock == nullptr) options.clock = clock;
  return options;
}

class RemoteClient final : public RelayClient {
 public:
  explicit RemoteClient(RemoteSessionOptions options);

  absl::StatusOr<JoinedJob> Join(const protocol::TensorTable& table,
                                 absl::string_view parameters_sha256) override;
  absl::StatusOr<JoinedRelay> JoinAsRelay(const protocol::TensorTable& table,
                                          absl::string_view parameters_sha256) override;
  void Abandon(absl::string_view reason) override;
  std::optional<SessionFigures> figures() const override;
  void Cut() override;

 private:
  absl::StatusOr<JoinInfo> JoinOnce(const protocol::TensorTable& table,
                                    absl::string_view parameters_sha256);
  v1::JoinRequest MakeJoinRequest(const protocol::TensorTable& table,
                                  absl::string_view parameters_sha256) const;
  absl::Status Restore(const Membership& membership, JoinInfo* info);
  // Marks this client as abandoned. Returns null if no session can notify the job: before Join, and
  // after a Join that failed, because a restarted process may take this rank.
  RemoteSession* GiveUp();

  const SteadyClock own_clock_;
  const RemoteSessionOptions options_;
  CoordinatorClient coordinator_;
  mutable Mutex mutex_;
  absl::Status join_status_ ABSL_GUARDED_BY(mutex_);  // Why Join failed.
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  // Null before Join. Written under the lock, because other threads may ask for figures or abandon
  // the job; the thread that joins reads it without the lock.
  std::unique_ptr<RemoteSession> session_;
};

RemoteClient::RemoteClient(RemoteSessionOptions options)
    : options_(Completed(std::move(options), &own_clock_)),
      coordinator_({.address = options_.coordinator,
                    .transport = options_.transport,
                    .rank = options_.rank,
                    .backoff_min = options_.backoff_min,
                    .backoff_max = options_.backoff_max,
                    .clock = options_.clock,
                    .let_in = options_.rejoining,
                    .logger = options_.logger}) {}

v1::JoinRequest RemoteClient::MakeJoinRequest(const protocol::TensorTable& table,
                                              absl::string_view parameters_sha256) const {
  v1::JoinRequest request;
  protocol::JoinToProto({.job_name = options_.job_name,
                         .job_hash = options_.job_hash,
                         .nonce = options_.nonce,
                         .rank = options_.rank,
                         .table = table,
                         .parameters_sha256 = std::string(parameters_sha256),
                         .software_version = options_.software_version,
                         .host = HostName(),
                         .pid = static_cast<uint32_t>(getpid())},
                        &request);
  return request;
}

absl::StatusOr<JoinedJob> RemoteClient::Join(const protocol::TensorTable& table,
                                             absl::string_view parameters_sha256) {
  absl::StatusOr<JoinedRelay> joined = JoinAsRelay(table, parameters_sha256);
  if (!joined.ok()) return joined.status();
  return JoinedJob{.info = std::move(joined->info), .session = joined->session};
}

absl::StatusOr<JoinedRelay> RemoteClient::JoinAsRelay(const protocol::TensorTable& table,
                                                      absl::string_view parameters_sha256) {
  {
    MutexLock lock(&mutex_);
    if (!join_status_.ok()) return join_status_;
    if (session_ != nullptr) return absl::FailedPreconditionError("this worker has joined already");
  }
  absl::StatusOr<JoinInfo> info = JoinOnce(table, parameters_sha256);
  if (!info.ok()) {
    MutexLock lock(&mutex_);
    return join_status_ = info.status();
  }
  return JoinedRelay{.info = *std::move(info), .session = session_.get()};
}

absl::StatusOr<JoinInfo> RemoteClient::JoinOnce(const protocol::TensorTable& table,
                                                absl::string_view parameters_sha256) {
  const absl::Status valid = protocol::ValidateTensorTable(table);
  if (!valid.ok()) return valid;
  const bool patient = options_.checkpoint.enabled();
  const absl::StatusOr<v1::JoinReply> reply = coordinator_.Join(
      MakeJoinRequest(table, parameters_sha256),
      patient && options_.rejoining ? options_.server.rejoin_timeout : options_.server.join_timeout,
      patient ? std::max(options_.server.join_timeout, options_.server.rejoin_timeout)
              : options_.server.join_timeout);
  if (!reply.ok()) return reply.status();
  const absl::StatusOr<Membership> membership =
      ReadJoinReply(*reply, table, options_.rank, options_.shards, options_.exchange.compression);
  if (!membership.ok()) return membership.status();
  JoinInfo info = {.rank = options_.rank,
                   .world_size = membership->world_size,
                   .first_step = membership->first_step,
                   .parameters_agree = membership->parameters_agree,
                   .members = membership->members,
                   .steps_behind = membership->late_joiner ? uint64_t{1} : 0};
  auto session = std::make_unique<RemoteSession>(options_, table, *membership, &coordinator_);
  {
    MutexLock lock(&mutex_);
    if (abandoned_) return absl::CancelledError("this worker gave up while it joined");
    session_ = std::move(session);
  }
  // Heartbeats continue meanwhile, because reading may take longer than a lease.
  if (membership->restore_step > 0) {
    if (absl::Status status = Restore(*membership, &info); !status.ok()) return status;
    return info;
  }
  if (absl::Status status = session_->steps().SetPlans(membership->plans); !status.ok()) {
    return session_->Fail(absl::InvalidArgumentError(
        absl::StrCat("the coordinator's answer to Join is invalid: ", status.message(),
                     "; do worker and server run the same version and job file?")));
  }
  return info;
}

absl::Status RemoteClient::Restore(const Membership& membership, JoinInfo* info) {
  std::string part;
  absl::StatusOr<RestoredState> restored =
      RestoreSession(options_, membership, session_.get(), &part);
  session_->RestoreEnded();
  if (restored.ok()) {
    info->restored_step = membership.restore_step;
    info->restored_world_size = restored->world_size;
    info->restored = std::move(restored->trainer);
    return absl::OkStatus();
  }
  const absl::Status& status = restored.status();
  if (absl::Status ended = session_->steps().status(); !ended.ok()) return ended;
  if (IsRollback(status) || absl::IsCancelled(status)) return session_->Fail(status);
  const std::string message = absl::StrCat("the checkpoint after step ", membership.restore_step,
                                           " cannot be restored: ", status.message());
  if (!absl::IsDataLoss(status)) {
    // The previous checkpoint would fail in the same way.
    const absl::Status failed = session_->Fail(absl::Status(status.code(), message));
    session_->Abandon(message);
    return failed;
  }
  options_.logger.Warning(message);
  const protocol::CheckpointPart unreadable{.term = membership.sender.term,
                                            .step = membership.restore_step,
                                            .name = std::move(part),
                                            .error = std::string(status.message()),
                                            .unreadable = true};
  absl::Status told;
  do {  // UNAVAILABLE also means that a server examines the part.
    told = coordinator_.ReportCheckpoint(membership.sender, unreadable,
                                         options_.server.connect_timeout);
  } while (absl::IsUnavailable(told) && session_->steps().SleepFor(kReportAgain));
  return session_->Fail(told.ok() || absl::IsUnavailable(told) ? RollbackError(message) : told);
}

RemoteSession* RemoteClient::GiveUp() {
  MutexLock lock(&mutex_);
  abandoned_ = true;
  return join_status_.ok() ? session_.get() : nullptr;
}

void RemoteClient::Abandon(absl::string_view reason) {
  RemoteSession* const session = GiveUp();
  if (session != nullptr) return session->Abandon(reason);
  coordinator_.Cancel();
}

void RemoteClient::Cut() {
  RemoteSession* const session = GiveUp();
  if (session != nullptr) (void)session->Fail(absl::CancelledError("this session was cut"));
  coordinator_.Cancel();
}

std::optional<SessionFigures> RemoteClient::figures() const {
  MutexLock lock(&mutex_);
  if (session_ == nullptr) return std::nullopt;
  return session_->figures();
}

}  // namespace

std::unique_ptr<JobClient> MakeRemoteClient(RemoteSessionOptions options) {
  return std::make_unique<RemoteClient>(std::move(options));
}

std::unique_ptr<RelayClient> MakeRelayClient(RemoteSessionOptions options) {
  return std::make_unique<RemoteClient>(std::move(options));
}

}  // namespace sluice::worker
