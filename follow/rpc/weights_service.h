// SPDX-License-Identifier: Apache-2.0
// WeightsService: the gRPC service for followers of a job's weights.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "follow/rpc/weights_hub.h"
#include "net/grpc/transport.h"
#include "protocol/weights.h"
#include "sluice/v1/weights.grpc.pb.h"

namespace sluice::follow {

class WeightsService final : public v1::Weights::CallbackService {
 public:
  // Describes the job, or says why that is impossible now. Called on gRPC's threads.
  using Describer = std::function<absl::StatusOr<protocol::WeightsDescription>()>;

  // All arguments must outlive the service's calls. `hub` may be null: the job has no followers.
  WeightsService(WeightsHub* hub, Describer describe,
                 std::shared_ptr<const net::Transport> transport, const Clock* clock)
      : hub_(hub),
        describe_(std::move(describe)),
        transport_(std::move(transport)),
        clock_(clock) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeWeightsRequest* request,
                                     v1::DescribeWeightsReply* reply) override;
  grpc::ServerWriteReactor<v1::FollowReply>* Follow(grpc::CallbackServerContext* context,
                                                    const v1::FollowRequest* request) override;

 private:
  WeightsHub* const hub_;
  const Describer describe_;
  const std::shared_ptr<const net::Transport> transport_;
  const Clock* const clock_;
};

}  // namespace sluice::follow
