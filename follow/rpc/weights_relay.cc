// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/weights_relay.h"

#include <algorithm>
#include <map>
#include <utility>

#include "follow/model_assembly.h"
#include "follow/rpc/update_parts.h"

namespace sluice::follow {

absl::StatusOr<std::unique_ptr<WeightsRelay>> WeightsRelay::Start(Options options,
                                                                  const Clock* clock,
                                                                  const Logger& logger) {
  std::unique_ptr<WeightsRelay> relay(new WeightsRelay(std::move(options), clock, logger));
  const absl::StatusOr<protocol::WeightsDescription> job =
      relay->client_.AwaitDescription(relay->options_.patience);
  if (!job.ok()) return job.status();
  relay->hub_ = std::make_unique<WeightsHub>(
      WeightsHub::Options{.types = job->types, .followers_max = relay->options_.followers_max},
      logger);
  WeightsRelay* const self = relay.get();
  relay->hub_->OnFirstFollower([self](compress::ElementType type) { self->Request(type); });
  if (absl::Status connected = relay->Connect(); !connected.ok()) return connected;
  return relay;
}

WeightsRelay::~WeightsRelay() {
  std::vector<std::unique_ptr<UpdateReceiver>> receivers;
  {
    MutexLock lock(&mutex_);
    receivers.swap(receivers_);
  }
  receivers.clear();
}

absl::Status WeightsRelay::Connect() {
  absl::StatusOr<protocol::WeightsDescription> job = client_.Describe();
  if (!job.ok()) return job.status();
  const absl::StatusOr<ModelParts> parts = protocol::PartsOfWeights(*job);
  if (!parts.ok()) return parts.status();
  std::map<uint32_t, TensorLayout> shards;
  for (uint32_t i = 0; i < job->shards(); ++i) shards[i] = LayoutOfShard(*parts, i);
  hub_->Begin(job->job_uid, shards);
  MutexLock lock(&mutex_);
  job_ = *std::move(job);
  requested_.clear();
  return absl::OkStatus();
}

absl::StatusOr<protocol::WeightsDescription> WeightsRelay::Describe() const {
  MutexLock lock(&mutex_);
  protocol::WeightsDescription description = job_;
  for (std::string& address : description.addresses) address.clear();
  return description;
}

void WeightsRelay::Request(compress::ElementType type) {
  MutexLock lock(&mutex_);
  if (!requested_.insert(type).second) return;
  const absl::StatusOr<ModelParts> parts = protocol::PartsOfWeights(job_);
  if (!parts.ok()) return;  // Connect has checked the description.
  for (uint32_t i = 0; i < job_.shards(); ++i) {
    if (parts->shards[i].empty()) continue;
    {
      MutexLock outcome(&outcome_mutex_);
      ++running_;
      had_receivers_ = true;
    }
    receivers_.push_back(std::make_unique<UpdateReceiver>(
        UpdateReceiver::Options{.transport = options_.transport,
                                .address = job_.addresses[i],
                                .query = {.job_uid = job_.job_uid,
                                          .shard = i,
                                          .type = type,
                                          .update_bytes_max = LargestUpdate(*parts, i, type)},
                                .patience = options_.patience},
        UpdateReceiver::Callbacks{
            .have = [this, i, type] { return hub_->StateToContinue(i, type); },
            .take =
                [this, i, type](uint32_t term, std::vector<std::byte> update) {
                  return hub_->Repeat(i, type, term, std::move(update));
                },
            .ended = [this](const absl::Status& status) { Ended(status); }},
        clock_));
  }
}

void WeightsRelay::Ended(const absl::Status& status) {
  MutexLock lock(&outcome_mutex_);
  if (status.ok()) {
    --running_;
  } else if (failure_.ok()) {
    failure_ = status;
  }
}

std::optional<absl::Status> WeightsRelay::Outcome() {
  absl::Status failure;
  {
    MutexLock lock(&outcome_mutex_);
    if (failure_.ok() && (running_ > 0 || !had_receivers_)) return std::nullopt;
    failure = failure_;
  }
  if (!absl::IsFailedPrecondition(failure)) {
    hub_->Finish(failure);
    return failure;
  }
  // Another run of the job has begun.
  logger_.Warning(failure.message());
  std::vector<std::unique_ptr<UpdateReceiver>> receivers;
  {
    MutexLock lock(&mutex_);
    receivers.swap(receivers_);
  }
  receivers.clear();
  {
    MutexLock lock(&outcome_mutex_);
    running_ = 0;
    failure_ = absl::OkStatus();
    had_receivers_ = false;
  }
  const absl::Status connected = Connect();
  if (connected.ok()) return std::nullopt;
  if (absl::IsUnavailable(connected)) {
    MutexLock lock(&outcome_mutex_);
    failure_ = failure;  // The next call tries again.
    return std::nullopt;
  }
  return connected;
}

}  // namespace sluice::follow
