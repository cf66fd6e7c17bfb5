// SPDX-License-Identifier: Apache-2.0
// WeightsChannel: one shard's weights in one type, as a sequence of updates for any number of
// followers. One thread, the producer, adds versions and makes anchors, which takes about a second
// per gigabyte. Other threads choose updates meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/tensor_layout.h"
#include "follow/update_log.h"
#include "follow/weights_version.h"

namespace sluice::follow {

class WeightsChannel {
 public:
  // CheckLayout must accept the layout.
  WeightsChannel(compress::ElementType type, TensorLayout layout);

  compress::ElementType type() const { return type_; }
  const TensorLayout& layout() const { return layout_; }
  uint64_t weights_bytes() const { return weights_bytes_; }

  // The producer calls the next four functions.

  // Adds a version, whose weights have weights_bytes() bytes. It need not be newer than the last
  // one: after a rollback or a restart, the sequence begins again.
  absl::Status Publish(const WeightsVersion& version, std::vector<std::byte> weights);
  // Adds an update that another channel sent. Fails as Patch::Parse and Patch::Apply do. After a
  // failure, the channel is broken until it gets an anchor.
  absl::Status Repeat(uint32_t term, std::vector<std::byte> update);
  // Makes an anchor if a follower waits for one and it may be made now.
  absl::Status MakeWantedAnchor();
  // Drops the channel's own reference to the anchor it made. From then on, only followers hold it.
  void ReleaseAnchor();

  // Chooses the next update of a follower. Records if the follower needs a new anchor.
  UpdateLog::Choice NextFor(const std::optional<WeightsState>& have);
  std::optional<WeightsState> newest() const;
  bool is_broken() const;
  // What the next update must continue. Unset if it must be an anchor.
  std::optional<WeightsState> StateToContinue() const;
  // See UpdateLog::Behind.
  std::optional<uint64_t> Behind(const std::optional<WeightsState>& have) const;
  bool wants_anchor() const;
  uint64_t anchors_made() const;

 private:
  absl::Status TryToRepeat(uint32_t term, std::vector<std::byte> update);

  const compress::ElementType type_;
  const TensorLayout layout_;
  const uint64_t weights_bytes_;
  const Digest layout_digest_;
  std::vector<std::byte> weights_;  // Used only by the producer. Empty before the first version.
  std::optional<WeightsState> current_;  // Likewise; the state of `weights_`.
  mutable Mutex mutex_;
  UpdateLog log_ ABSL_GUARDED_BY(mutex_);
  SharedUpdate new_anchor_ ABSL_GUARDED_BY(mutex_);
  bool wants_anchor_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t anchors_made_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::follow
