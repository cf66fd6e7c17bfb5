// SPDX-License-Identifier: Apache-2.0
// Conversion between plain types and the messages between a worker and the coordinator: Join,
// Heartbeat and Leave, with their replies. Converting a request checks every size and range.
// Converting a reply checks only its plan; worker/rpc/membership checks the rest.
#pragma once

#include "absl/status/statusor.h"
#include "protocol/membership.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::protocol {

void JoinToProto(const WorkerJoin& join, v1::JoinRequest* message);
// Fails with INVALID_ARGUMENT if the table is malformed, the hash has the wrong size, or the worker
// asks to resume.
absl::StatusOr<WorkerJoin> JoinFromProto(const v1::JoinRequest& message);

void PlaceToProto(const ShardPlace& place, v1::ShardAddress* message);
ShardPlace PlaceFromProto(const v1::ShardAddress& message);

void GrantToProto(const JoinGrant& grant, v1::JoinReply* message);
// Fails with INVALID_ARGUMENT if the plan is malformed (PlanFromProto).
absl::StatusOr<JoinGrant> GrantFromProto(const v1::JoinReply& message);

void ProgressToProto(const MemberProgress& progress, v1::WorkerProgress* message);

void HeartbeatToProto(const WorkerHeartbeat& heartbeat, v1::HeartbeatRequest* message);
// Fails with INVALID_ARGUMENT if the hash has the wrong size.
absl::StatusOr<WorkerHeartbeat> HeartbeatFromProto(const v1::HeartbeatRequest& message);

void HeartbeatReplyToProto(const HeartbeatReply& answer, v1::HeartbeatReply* message);
// An unknown phase counts as kRunning.
HeartbeatReply HeartbeatReplyFromProto(const v1::HeartbeatReply& message);

void LeaveToProto(const WorkerLeave& leave, v1::LeaveRequest* message);
// Fails with INVALID_ARGUMENT if the hash has the wrong size.
absl::StatusOr<WorkerLeave> LeaveFromProto(const v1::LeaveRequest& message);

// Sets only the phase, the failure and the term of `job`.
void LeaveAnswerToProto(const JobState& job, v1::LeaveReply* message);
// An unknown phase counts as kRunning.
JobState LeaveAnswerFromProto(const v1::LeaveReply& message);

}  // namespace sluice::protocol
