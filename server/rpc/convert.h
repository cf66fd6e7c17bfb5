// The server's messages to plain types and back. Every size and range that came from the network is
// checked here.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_warnings.h"
#include "sluice/v1/coordinator.pb.h"
#include "sluice/v1/parameter_shard.pb.h"
#include "sluice/v1/shard_control.pb.h"

namespace sluice::server {

// The codes of both are the same numbers.
grpc::Status ToGrpc(const absl::Status& status);

v1::ExchangeReply ReplyToProto(const protocol::ExchangeAnswer& answer, uint64_t server_incarnation);
absl::StatusOr<WorkerJoin> JoinFromProto(const v1::JoinRequest& request);
void PlaceToProto(const ShardPlace& place, v1::ShardAddress* address);
void GrantToProto(const JoinGrant& grant, v1::JoinReply* reply);
absl::StatusOr<WorkerHeartbeat> HeartbeatFromProto(const v1::HeartbeatRequest& request);
absl::StatusOr<WorkerLeave> LeaveFromProto(const v1::LeaveRequest& request);
v1::JobPhase PhaseToProto(JobPhase phase);
JobPhase PhaseFromProto(v1::JobPhase phase);
void StatusToProto(const JobStatus& status, const std::vector<JobWarning>& warnings,
                   v1::GetStatusReply* reply);

v1::ShardHello HelloToProto(const ShardArrival& arrival);
ShardArrival HelloFromProto(const v1::ShardHello& hello);
v1::ShardHealth HealthToProto(const ShardHealthReport& health);
ShardHealthReport HealthFromProto(const v1::ShardHealth& health);
void PartToProto(const protocol::CheckpointPart& part, v1::CheckpointPart* out);
// A name that no file may have becomes the part's error.
protocol::CheckpointPart PartFromProto(const v1::CheckpointPart& part);
v1::ShardCommand CommandToProto(const CommandShard& command);
absl::StatusOr<StartShard> StartFromProto(const v1::StartJob& start);
absl::StatusOr<SetMembers> MembersFromProto(const v1::Membership& membership);

}  // namespace sluice::server
