// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/weights_serving.h"

#include <utility>

namespace sluice::server {
namespace {

std::unique_ptr<follow::WeightsHub> HubFor(const job::JobSpec& job, Logger logger) {
  // The rack of a relay has no parameters.
  if (!job.followers.enabled() || job.part.rack_of > 0) return nullptr;
  return std::make_unique<follow::WeightsHub>(
      follow::WeightsHub::Options{.types = job.followers.types,
                                  .followers_max = job.followers.max_connected,
                                  .every = job.followers.every},
      std::move(logger));
}

}  // namespace

WeightsServing::WeightsServing(const job::JobSpec& job, uint32_t shard, Addresses addresses,
                               std::shared_ptr<const net::Transport> transport, const Clock* clock,
                               Logger logger)
    : addresses_(std::move(addresses)),
      hub_(HubFor(job, std::move(logger))),
      source_(hub_ == nullptr ? nullptr : std::make_unique<WeightsSource>(job, shard, hub_.get())),
      service_(
          hub_.get(), [this] { return Describe(); }, std::move(transport), clock) {}

void WeightsServing::OnFirstFollower(const std::function<void()>& listener) {
  if (hub_ != nullptr) hub_->OnFirstFollower([listener](compress::ElementType) { listener(); });
}

void WeightsServing::Finish(const absl::Status& end) {
  if (hub_ != nullptr) hub_->Finish(end);
}

std::optional<follow::FollowerFigures> WeightsServing::figures() const {
  return hub_ == nullptr ? std::nullopt : std::optional(hub_->figures());
}

absl::StatusOr<protocol::WeightsDescription> WeightsServing::Describe() const {
  if (!addresses_) {
    return absl::FailedPreconditionError("only shard 0 describes the job: give its address");
  }
  absl::StatusOr<protocol::WeightsDescription> description = source_->Describe();
  if (!description.ok()) return description;
  const std::vector<std::string> addresses = addresses_();
  for (size_t i = 0; i < addresses.size() && i < description->addresses.size(); ++i) {
    // This server may be reached under other names than its own one.
    if (i > 0) description->addresses[i] = addresses[i];
  }
  return description;
}

}  // namespace sluice::server
