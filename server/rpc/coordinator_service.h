// SPDX-License-Identifier: Apache-2.0
// CoordinatorService and ControlService: the coordinator's gRPC services, for workers and for
// shards.
#pragma once

#include <memory>
#include <utility>

#include "base/log.h"
#include "net/grpc/transport.h"
#include "server/rpc/coordinator_host.h"
#include "sluice/v1/coordinator.grpc.pb.h"
#include "sluice/v1/shard_control.grpc.pb.h"

namespace sluice::server {

class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  // `logger` gets a line for each call that commands the job.
  CoordinatorService(CoordinatorHost* host, std::shared_ptr<const net::Transport> transport,
                     Logger logger)
      : host_(host), transport_(std::move(transport)), logger_(std::move(logger)) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request, v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatReply* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveReply* reply) override;
  grpc::ServerUnaryReactor* ReportCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::ReportCheckpointRequest* request,
                                             v1::ReportCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* RequestCheckpoint(grpc::CallbackServerContext* context,
                                              const v1::RequestCheckpointRequest* request,
                                              v1::RequestCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusReply* reply) override;
  grpc::ServerUnaryReactor* EvictRank(grpc::CallbackServerContext* context,
                                      const v1::EvictRankRequest* request,
                                      v1::EvictRankReply* reply) override;
  grpc::ServerUnaryReactor* ChangeSettings(grpc::CallbackServerContext* context,
                                           const v1::ChangeSettingsRequest* request,
                                           v1::ChangeSettingsReply* reply) override;

 private:
  absl::Status CheckJobName(absl::string_view asked) const;
  // Logs that this client gave a command and whether it was refused.
  void Audit(grpc::CallbackServerContext* context, absl::string_view what,
             const absl::Status& outcome) const;

  CoordinatorHost* const host_;
  const std::shared_ptr<const net::Transport> transport_;
  const Logger logger_;
};

class ControlService final : public v1::ShardControl::CallbackService {
 public:
  ControlService(CoordinatorHost* host, std::shared_ptr<const net::Transport> transport)
      : host_(host), transport_(std::move(transport)) {}

  grpc::ServerUnaryReactor* Enter(grpc::CallbackServerContext* context,
                                  const v1::EnterRequest* request, v1::EnterReply* reply) override;
  grpc::ServerBidiReactor<v1::ShardReport, v1::ShardCommand>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  CoordinatorHost* const host_;
  const std::shared_ptr<const net::Transport> transport_;
};

}  // namespace sluice::server
