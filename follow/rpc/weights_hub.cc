// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/weights_hub.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"

namespace sluice::follow {
namespace {

using compress::ElementType;

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr uint64_t kStrideMax = 1 << 20;
constexpr uint64_t kInTimeBeforeShorter = 64;  // Versions in time before the stride is halved.
constexpr size_t kUpdatesMax = 8;              // Updates of another hub that may wait.
constexpr int kNice = 10;  // Encoding gives way to training if both want the same cores.

}  // namespace

WeightsHub::WeightsHub(Options options, Logger logger)
    : options_(std::move(options)), logger_(std::move(logger)), thread_([this] { Run(); }) {}

WeightsHub::~WeightsHub() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void WeightsHub::Begin(uint64_t job_uid, const std::map<uint32_t, TensorLayout>& shards) {
  MutexLock lock(&mutex_);
  end_.reset();
  bool same = job_uid == job_uid_;
  for (const auto& [shard, layout] : shards) {
    const auto channel = channels_.find({shard, options_.types.front()});
    same = same && channel != channels_.end() && channel->second->layout() == layout;
  }
  if (same) return;
  job_uid_ = job_uid;
  for (const auto& [reader, seat] : readers_) {
    reader->Wake(absl::FailedPreconditionError("another run of the job has begun"));
  }
  channels_.clear();
  work_.clear();
  for (const auto& [shard, layout] : shards) {
    for (const ElementType type : options_.types) {
      channels_[{shard, type}] = std::make_shared<WeightsChannel>(type, layout);
    }
  }
}

void WeightsHub::Finish(const absl::Status& end) {
  MutexLock lock(&mutex_);
  end_ = end;
  changed_.SignalAll();
}

std::vector<ElementType> WeightsHub::Wanted(uint64_t step, bool is_last) {
  MutexLock lock(&mutex_);
  if (readers_.empty() || (!is_last && step % (options_.every * stride_) != 0)) return {};
  if (!is_last && (busy_ || !work_.empty())) {
    ++figures_.skipped;
    stride_ = std::min(2 * stride_, kStrideMax);
    in_time_ = 0;
    return {};
  }
  if (++in_time_ >= kInTimeBeforeShorter && stride_ > 1) {
    stride_ /= 2;
    in_time_ = 0;
  }
  std::vector<ElementType> wanted;
  for (const ElementType type : options_.types) {
    const bool is_read = std::any_of(readers_.begin(), readers_.end(), [type](const auto& reader) {
      return reader.second.channel->type() == type;
    });
    if (is_read) wanted.push_back(type);
  }
  return wanted;
}

void WeightsHub::Offer(uint32_t shard, const WeightsVersion& version, ElementType type,
                       std::vector<std::byte> weights) {
  MutexLock lock(&mutex_);
  const auto channel = channels_.find({shard, type});
  if (channel == channels_.end() || weights.size() != channel->second->weights_bytes()) return;
  work_.push_back({.channel = channel->second,
                   .version = version,
                   .is_update = false,
                   .bytes = std::move(weights)});
  changed_.SignalAll();
}

bool WeightsHub::Repeat(uint32_t shard, ElementType type, uint32_t term,
                        std::vector<std::byte> update) {
  MutexLock lock(&mutex_);
  while (work_.size() >= kUpdatesMax && !stopping_) changed_.Wait(&mutex_);
  const auto channel = channels_.find({shard, type});
  if (stopping_ || channel == channels_.end() || channel->second->is_broken()) return false;
  work_.push_back({.channel = channel->second,
                   .version = {.term = term},
                   .is_update = true,
                   .bytes = std::move(update)});
  changed_.SignalAll();
  return true;
}

std::optional<WeightsState> WeightsHub::StateToContinue(uint32_t shard, ElementType type) {
  MutexLock lock(&mutex_);
  while ((!work_.empty() || busy_) && !stopping_) changed_.Wait(&mutex_);
  const auto channel = channels_.find({shard, type});
  return channel == channels_.end() ? std::nullopt : channel->second->StateToContinue();
}

absl::StatusOr<std::shared_ptr<WeightsChannel>> WeightsHub::Enter(UpdateReader* reader,
                                                                  const Request& request) {
  std::shared_ptr<WeightsChannel> channel;
  {
    MutexLock lock(&mutex_);
    if (channels_.empty()) return absl::UnavailableError("the job has not started yet");
    if (request.job_uid != job_uid_) {
      return absl::FailedPreconditionError("another run of the job has begun: ask Describe again");
    }
    const auto found = channels_.find({request.shard, request.type});
    if (found == channels_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shard ", request.shard, " with type ", NameOf(request.type),
          " is not served here; the job ", "offers ",
          absl::StrJoin(options_.types, ", ",
                        [](std::string* out, auto one) { absl::StrAppend(out, NameOf(one)); }),
          " (followers.types)"));
    }
    if (readers_.size() >= options_.followers_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat(options_.followers_max,
                       " followers are connected (followers.max_connected): raise the limit, or ",
                       "let followers read from a relay"));
    }
    channel = found->second;
    readers_[reader] = {.channel = channel, .has = request.have};
    changed_.SignalAll();
  }
  if (!channel->newest().has_value() && first_follower_) first_follower_(request.type);
  return channel;
}

void WeightsHub::Leave(UpdateReader* reader) {
  MutexLock lock(&mutex_);
  readers_.erase(reader);
  changed_.SignalAll();  // An anchor that it held may be free.
}

bool WeightsHub::AwaitReader(uint32_t shard, ElementType type, absl::Duration limit) {
  const SteadyClock clock;
  const absl::Time until = clock.Now() + limit;
  MutexLock lock(&mutex_);
  for (;;) {
    if (stopping_ || end_.has_value()) return false;
    const auto channel = channels_.find({shard, type});
    if (channel != channels_.end() &&
        std::any_of(readers_.begin(), readers_.end(),
                    [&](const auto& reader) { return reader.second.channel == channel->second; })) {
      return true;
    }
    const absl::Duration left = until - clock.Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
}

void WeightsHub::Received(UpdateReader* reader, const WeightsState& state, uint64_t bytes) {
  MutexLock lock(&mutex_);
  figures_.sent_bytes += bytes;
  const auto seat = readers_.find(reader);
  if (seat != readers_.end()) seat->second.has = state;
}

void WeightsHub::Poke() {
  MutexLock lock(&mutex_);
  changed_.SignalAll();
}

FollowerFigures WeightsHub::figures() const {
  MutexLock lock(&mutex_);
  FollowerFigures figures = figures_;
  figures.followers = readers_.size();
  for (const auto& [key, channel] : channels_) {
    figures.anchors += channel->anchors_made();
    const std::optional<WeightsState> newest = channel->newest();
    if (newest.has_value()) {
      figures.newest_step = std::max(figures.newest_step, newest->version.step);
    }
  }
  for (const auto& [reader, seat] : readers_) {
    const std::optional<WeightsState> newest = seat.channel->newest();
    if (!newest.has_value() || !seat.has.has_value()) continue;
    const uint64_t has = seat.has->version.step;
    if (newest->version.step > has) {
      figures.lag_steps = std::max(figures.lag_steps, newest->version.step - has);
    }
  }
  return figures;
}

void WeightsHub::Run() {
  // On Linux, this is the priority of the calling thread alone. If it fails, encoding goes on.
  if (nice(kNice) == -1) logger_.Debug("encoding for followers keeps its priority");
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (!work_.empty()) {
      Work work = std::move(work_.front());
      work_.pop_front();
      Do(std::move(work));
    } else if (!MakeAnchors()) {
      changed_.WaitFor(&mutex_, kTick);
      WakeAll();
    }
  }
}

void WeightsHub::Do(Work work) {
  busy_ = true;
  mutex_.Unlock();
  const absl::Status done = work.is_update
                                ? work.channel->Repeat(work.version.term, std::move(work.bytes))
                                : work.channel->Publish(work.version, std::move(work.bytes));
  mutex_.Lock();
  busy_ = false;
  if (done.ok()) {
    ++figures_.versions;
  } else {
    logger_.Warning("followers do not get a version: ", done.message());
  }
  changed_.SignalAll();
  WakeAll();
}

// Returns false if no follower waits for an anchor.
bool WeightsHub::MakeAnchors() {
  std::vector<std::shared_ptr<WeightsChannel>> wanted;
  for (const auto& [key, channel] : channels_) {
    if (channel->wants_anchor()) wanted.push_back(channel);
  }
  for (const std::shared_ptr<WeightsChannel>& channel : wanted) {
    mutex_.Unlock();
    const absl::Status made = channel->MakeWantedAnchor();
    mutex_.Lock();
    if (!made.ok()) logger_.Warning("followers do not get an anchor: ", made.message());
    WakeAll();
    channel->ReleaseAnchor();
  }
  return !wanted.empty();
}

void WeightsHub::WakeAll() {
  const bool is_last = work_.empty() && !busy_;
  for (const auto& [reader, seat] : readers_) reader->Wake(is_last ? end_ : std::nullopt);
}

}  // namespace sluice::follow
