// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/weights_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "follow/rpc/update_parts.h"
#include "net/grpc/steady_deadline.h"
#include "protocol/wire/weights_messages.h"

namespace sluice::follow {
namespace {

constexpr absl::Duration kDescribeTimeout = absl::Seconds(10);
constexpr absl::Duration kDescribePause = absl::Milliseconds(200);

absl::Status Stopped() { return absl::CancelledError("the follower was stopped"); }

// Keeps the reason, and says whether a retry may succeed.
absl::Status StatusOf(const grpc::Status& status, const net::Transport& transport,
                      const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  const std::string reason = absl::StrCat(address, ": ", transport.Explain(status.error_message()));
  switch (status.error_code()) {
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::CANCELLED:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()), reason);
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::FailedPreconditionError(absl::StrCat(
          address,
          " does not serve weights: it is not a server of a job, or its version is older"));
    default:
      return absl::UnavailableError(reason);
  }
}

}  // namespace

WeightsClient::WeightsClient(std::shared_ptr<const net::Transport> transport, std::string address,
                             const Clock* clock)
    : transport_(std::move(transport)),
      address_(std::move(address)),
      clock_(clock),
      gate_(clock),
      channel_(transport_->Dial(address_)),
      stub_(v1::Weights::NewStub(channel_)) {}

absl::Status WeightsClient::End(grpc::ClientContext* context, const grpc::Status& status) {
  if (!gate_.End(context)) return Stopped();
  return StatusOf(status, *transport_, address_);
}

absl::StatusOr<protocol::WeightsDescription> WeightsClient::Describe() {
  grpc::ClientContext context;
  context.set_deadline(net::SteadyDeadline(kDescribeTimeout));
  if (!gate_.Begin(&context)) return Stopped();
  v1::DescribeWeightsReply reply;
  absl::Status status = End(&context, stub_->Describe(&context, {}, &reply));
  if (!status.ok()) return status;
  absl::StatusOr<protocol::WeightsDescription> description = protocol::DescriptionFromProto(reply);
  if (!description.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(address_, " sent an invalid description: ", description.status().message()));
  }
  for (std::string& shard : description->addresses) {
    if (shard.empty()) shard = address_;
  }
  return description;
}

absl::StatusOr<protocol::WeightsDescription> WeightsClient::AwaitDescription(
    absl::Duration patience) {
  const absl::Time give_up = clock_->Now() + patience;
  for (;;) {
    absl::StatusOr<protocol::WeightsDescription> job = Describe();
    if (job.ok() || !absl::IsUnavailable(job.status()) || clock_->Now() > give_up) return job;
    if (!Pause(kDescribePause)) return Stopped();
  }
}

bool WeightsClient::Pause(absl::Duration duration) {
  return gate_.ConnectFor(duration, channel_.get());
}

absl::Status WeightsClient::Receive(const FollowQuery& query, const Receiver& receiver) {
  v1::FollowRequest request;
  request.set_job_uid(query.job_uid);
  request.set_shard(query.shard);
  request.set_type(protocol::TypeToProto(query.type));
  if (query.have.has_value()) protocol::StateToProto(*query.have, request.mutable_have());
  grpc::ClientContext context;
  if (!gate_.Begin(&context)) return Stopped();
  const auto reader = stub_->Follow(&context, request);
  UpdateParts parts(query.update_bytes_max);
  v1::FollowReply reply;
  absl::Status problem;
  while (problem.ok() && reader->Read(&reply)) {
    problem = parts.Add(reply);
    if (problem.ok() && parts.complete() && !receiver(reply.term(), parts.Take())) {
      problem = absl::CancelledError("the update was not accepted");
    }
  }
  if (!problem.ok()) context.TryCancel();
  const absl::Status status = End(&context, reader->Finish());
  return problem.ok() ? status : problem;
}

void WeightsClient::Cancel() { gate_.Close(); }

}  // namespace sluice::follow
