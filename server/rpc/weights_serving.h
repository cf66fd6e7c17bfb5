// SPDX-License-Identifier: Apache-2.0
// WeightsServing: what a server has for followers of its job: the hub, the shard's parameters as
// its source, and the gRPC service. In a job without followers, the service only says so.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/log.h"
#include "follow/rpc/weights_hub.h"
#include "follow/rpc/weights_service.h"
#include "job/job_spec.h"
#include "net/grpc/transport.h"
#include "server/rpc/weights_source.h"

namespace sluice::server {

class WeightsServing {
 public:
  // Returns the addresses of all shards. Null on a server that is not shard 0.
  using Addresses = std::function<std::vector<std::string>()>;

  WeightsServing(const job::JobSpec& job, uint32_t shard, Addresses addresses,
                 std::shared_ptr<const net::Transport> transport, const Clock* clock,
                 Logger logger);

  // The next two are null in a job without followers.
  follow::WeightsHub* hub() { return hub_.get(); }
  WeightsSource* source() { return source_.get(); }
  grpc::Service* service() { return &service_; }
  // Called when a follower needs a first version. Set it before the service is used.
  void OnFirstFollower(const std::function<void()>& listener);
  // Ends the followers' calls with `end` once they have the newest version.
  void Finish(const absl::Status& end);
  // True if no follower is connected.
  bool drained() const { return hub_ == nullptr || hub_->figures().followers == 0; }
  // Unset in a job without followers.
  std::optional<follow::FollowerFigures> figures() const;

 private:
  absl::StatusOr<protocol::WeightsDescription> Describe() const;

  const Addresses addresses_;
  const std::unique_ptr<follow::WeightsHub> hub_;
  const std::unique_ptr<WeightsSource> source_;
  follow::WeightsService service_;
};

}  // namespace sluice::server
