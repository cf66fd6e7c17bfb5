// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "follow/rpc/update_parts.h"

namespace sluice::follow {
namespace {

// A shard may learn of a new run later than shard 0.
constexpr absl::Duration kPauseBetweenRuns = absl::Milliseconds(500);

std::string Named(const std::vector<compress::ElementType>& types) {
  return absl::StrJoin(types, ", ", [](std::string* out, compress::ElementType type) {
    absl::StrAppend(out, NameOf(type));
  });
}

}  // namespace

Follower::Follower(Options options, const Clock* clock, Logger logger)
    : options_(std::move(options)),
      clock_(clock),
      logger_(std::move(logger)),
      client_(options_.transport, options_.address, clock_) {}

Follower::~Follower() {
  Cancel();
  StopReceivers();
}

absl::Status Follower::Connect() {
  absl::StatusOr<protocol::WeightsDescription> job = client_.AwaitDescription(options_.patience);
  if (!job.ok()) return job.status();
  if (std::find(job->types.begin(), job->types.end(), options_.type) == job->types.end()) {
    return absl::InvalidArgumentError(absl::StrCat("job ", job->job, " does not offer ",
                                                   NameOf(options_.type), ", but ",
                                                   Named(job->types), " (followers.types)"));
  }
  absl::StatusOr<ModelParts> parts = protocol::PartsOfWeights(*job);
  if (!parts.ok()) return parts.status();
  job_ = *std::move(job);
  update_bytes_max_.clear();
  for (size_t i = 0; i < parts->shards.size(); ++i) {
    update_bytes_max_.push_back(LargestUpdate(*parts, i, options_.type));
  }
  MutexLock lock(&mutex_);
  model_ = std::make_unique<ModelAssembly>(options_.type, *std::move(parts));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Follower::Version>> Follower::Next() {
  for (;;) {
    if (receivers_.empty()) StartReceivers();
    absl::StatusOr<std::optional<Version>> next = NextOfRun();
    if (!absl::IsFailedPrecondition(next.status())) return next;
    // Another run of the job has begun, with a model of its own.
    logger_.Warning(next.status().message());
    StopReceivers();
    absl::SleepFor(kPauseBetweenRuns);
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    logger_.Info("follows another run of job ", job_.job);
  }
}

absl::StatusOr<std::optional<Follower::Version>> Follower::NextOfRun() {
  MutexLock lock(&mutex_);
  for (;;) {
    if (cancelled_) return absl::CancelledError("the follower was stopped");
    const absl::StatusOr<std::optional<WeightsVersion>> version = model_->Advance();
    changed_.SignalAll();  // A shard may have space for more updates.
    if (!version.ok()) {
      // The shard's thread notices that its next patch does not fit and asks for an anchor.
      logger_.Warning(version.status().message());
      continue;
    }
    if (version->has_value()) {
      return Version{
          .version = **version, .weights = model_->weights(), .applied = model_->applied()};
    }
    if (!failure_.ok()) return failure_;
    if (running_ == 0) return std::nullopt;
    changed_.Wait(&mutex_);
  }
}

void Follower::Cancel() {
  client_.Cancel();
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.SignalAll();
}

UpdateReceiver::Callbacks Follower::CallbacksOf(size_t index) {
  return {.have =
              [this, index] {
                MutexLock lock(&mutex_);
                return model_->have(index);
              },
          .take =
              [this, index](uint32_t term, std::vector<std::byte> update) {
                return Take(index, term, std::move(update));
              },
          .ended =
              [this](const absl::Status& status) {
                MutexLock lock(&mutex_);
                if (status.ok()) {
                  --running_;
                } else if (failure_.ok()) {
                  failure_ = status;
                }
                changed_.SignalAll();
              }};
}

void Follower::StartReceivers() {
  std::vector<size_t> shards;
  {
    MutexLock lock(&mutex_);
    stopping_ = false;
    failure_ = absl::OkStatus();
    for (size_t i = 0; i < job_.addresses.size(); ++i) {
      if (model_->HasWeights(i)) shards.push_back(i);
    }
    running_ = shards.size();
  }
  for (const size_t i : shards) {
    receivers_.push_back(std::make_unique<UpdateReceiver>(
        UpdateReceiver::Options{.transport = options_.transport,
                                .address = job_.addresses[i],
                                .query = {.job_uid = job_.job_uid,
                                          .shard = static_cast<uint32_t>(i),
                                          .type = options_.type,
                                          .update_bytes_max = update_bytes_max_[i]},
                                .patience = options_.patience},
        CallbacksOf(i), clock_));
  }
}

void Follower::StopReceivers() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (const std::unique_ptr<UpdateReceiver>& receiver : receivers_) receiver->Stop();
  receivers_.clear();
}

bool Follower::Take(size_t index, uint32_t term, std::vector<std::byte> update) {
  MutexLock lock(&mutex_);
  while (!stopping_ && !cancelled_ && model_->IsFull(index)) changed_.Wait(&mutex_);
  if (stopping_ || cancelled_) return false;
  if (absl::Status taken = model_->Take(index, term, std::move(update)); !taken.ok()) {
    logger_.Warning(taken.message());
    model_->StartOver(index);
    return false;
  }
  changed_.SignalAll();
  return true;
}

}  // namespace sluice::follow
