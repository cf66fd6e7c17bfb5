// SPDX-License-Identifier: Apache-2.0
// UpdateLog: the newest patches of one sequence of weights, and the choice of what a follower gets
// next. Followers share the log, so none has a queue of its own: one that lags too far for the log
// continues with an anchor. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "follow/weights_version.h"

namespace sluice::follow {

class UpdateLog {
 public:
  // What a follower gets next.
  enum class Next : uint8_t {
    kNothing,  // It has the newest version, or one that this log has not reached yet.
    kUpdate,
    kAnchor,  // It needs a new anchor, which the caller makes and gives to SetAnchor.
    kLater,   // It needs a new anchor, but kAnchorsMax of them are still in use.
  };
  struct Choice {
    Next next = Next::kNothing;
    SharedUpdate update{};  // Set with kUpdate.
  };
  // Number of anchors that followers may hold at a time. An anchor is as large as the weights.
  static constexpr size_t kAnchorsMax = 2;

  // Keeps patches of at most `bytes_max` bytes in total, and none that is larger. With the size of
  // an anchor as the limit, a follower never gets more bytes of patches than an anchor has.
  explicit UpdateLog(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Begins a sequence at `state`, or begins again there: earlier patches are forgotten.
  void Begin(const WeightsState& state);
  // Adds the patch that leads from the newest version to a later one of the same term.
  void Add(SharedUpdate patch);
  // Offers an anchor of the newest version to followers. The log keeps no reference.
  void SetAnchor(const SharedUpdate& anchor);

  // Chooses for a follower that has `have`; no value means that it has nothing.
  Choice NextFor(const std::optional<WeightsState>& have) const;
  // Returns the newest state. Unset before Begin.
  const std::optional<WeightsState>& newest() const { return newest_; }
  // Returns the number of logged patches between `have` and the newest version, or nothing if the
  // log does not reach back to `have`.
  std::optional<uint64_t> Behind(const WeightsState& have) const;
  uint64_t bytes() const { return bytes_; }

 private:
  std::optional<size_t> Find(const WeightsState& base) const;
  Choice ChooseAnchor(const std::optional<WeightsState>& have) const;

  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  std::optional<WeightsState> newest_;
  std::deque<SharedUpdate> patches_;
  std::vector<std::weak_ptr<const WeightsUpdate>> anchors_;  // Oldest first.
};

}  // namespace sluice::follow
