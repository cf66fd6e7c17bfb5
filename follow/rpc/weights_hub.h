// SPDX-License-Identifier: Apache-2.0
// WeightsHub: serves the weights of one or all shards of a job to followers. Its thread encodes
// patches and anchors, so neither training nor a follower waits for that. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/follower_figures.h"
#include "follow/rpc/weights_channel.h"
#include "follow/tensor_layout.h"
#include "follow/weights_version.h"

namespace sluice::follow {

// One follower's call. The hub may call it with its lock held, so it must not call back.
class UpdateReader {
 public:
  // A new update may be available. If `end` is set, none follows the newest one. Called at least
  // once per second.
  virtual void Wake(const std::optional<absl::Status>& end) = 0;

 protected:
  ~UpdateReader() = default;
};

class WeightsHub {
 public:
  struct Options {
    std::vector<compress::ElementType> types;  // Offered to followers.
    uint32_t followers_max = 64;
    uint64_t every = 1;  // Steps from one version to the next.
  };
  WeightsHub(Options options, Logger logger);
  ~WeightsHub();

  // Sets what is served. If the run and the layouts are those of the last call, the sequences go
  // on. Otherwise calls of followers end with FAILED_PRECONDITION.
  void Begin(uint64_t job_uid, const std::map<uint32_t, TensorLayout>& shards);
  // Ends the followers' calls with `end` once they have the newest version.
  void Finish(const absl::Status& end);

  // A shard asks this after each step. Returns the types in which the hub wants the weights of this
  // version now, with no type if no follower needs them. A shard whose versions take too long to
  // encode leaves out versions; then, it publishes only multiples of `every` times a power of two,
  // so that all shards still have versions in common. `is_last` announces the job's last version.
  std::vector<compress::ElementType> Wanted(uint64_t step, bool is_last);
  // Takes a version that Wanted asked for, without blocking.
  void Offer(uint32_t shard, const WeightsVersion& version, compress::ElementType type,
             std::vector<std::byte> weights);
  // Takes an update that another hub sent. Blocks while earlier updates wait. Returns false if an
  // earlier one did not fit: the other hub must then begin with StateToContinue.
  bool Repeat(uint32_t shard, compress::ElementType type, uint32_t term,
              std::vector<std::byte> update);
  // Waits until no update waits, and returns what the next one must continue. Unset if it must be
  // an anchor.
  std::optional<WeightsState> StateToContinue(uint32_t shard, compress::ElementType type);
  // The listener is called from any thread when a follower of a type arrives that has no weights
  // yet. Set it before the first follower enters.
  void OnFirstFollower(std::function<void(compress::ElementType)> listener) {
    first_follower_ = std::move(listener);
  }

  // What a call asks for.
  struct Request {
    uint64_t job_uid = 0;
    uint32_t shard = 0;
    compress::ElementType type = compress::ElementType::kBfloat16;
    std::optional<WeightsState> have{};
  };
  // Adds a call. Fails as the RPC Follow does (weights.proto). The reader must call Leave.
  absl::StatusOr<std::shared_ptr<WeightsChannel>> Enter(UpdateReader* reader,
                                                        const Request& request);
  void Leave(UpdateReader* reader);
  // Waits until a call asks for the weights of this shard and type. Returns false if there is none
  // after `limit`, or the followers' calls are about to end.
  bool AwaitReader(uint32_t shard, compress::ElementType type, absl::Duration limit);
  // Records what a reader has received.
  void Received(UpdateReader* reader, const WeightsState& state, uint64_t bytes);
  // Asks for the anchors that followers need.
  void Poke();

  std::vector<compress::ElementType> types() const { return options_.types; }
  FollowerFigures figures() const;

 private:
  using ChannelKey = std::pair<uint32_t, compress::ElementType>;
  struct Work {
    std::shared_ptr<WeightsChannel> channel;
    WeightsVersion version;
    bool is_update = false;  // `bytes` is an update; otherwise it is the weights.
    std::vector<std::byte> bytes;
  };
  struct Seat {
    std::shared_ptr<WeightsChannel> channel;
    std::optional<WeightsState> has;
  };

  void Run();
  void Do(Work work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MakeAnchors() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Logger logger_;
  std::function<void(compress::ElementType)> first_follower_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t job_uid_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<ChannelKey, std::shared_ptr<WeightsChannel>> channels_ ABSL_GUARDED_BY(mutex_);
  std::map<UpdateReader*, Seat> readers_ ABSL_GUARDED_BY(mutex_);
  std::deque<Work> work_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;                // The thread works without the lock.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // See Finish.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t stride_ ABSL_GUARDED_BY(mutex_) = 1;   // A power of two.
  uint64_t in_time_ ABSL_GUARDED_BY(mutex_) = 0;  // Versions taken since the stride changed.
  FollowerFigures figures_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::follow
