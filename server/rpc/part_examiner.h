// SPDX-License-Identifier: Apache-2.0
// PartExaminer: reads a part of a complete checkpoint on a thread of its own and reports whether
// the file matches the manifest. The thread exists during an examination only. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "protocol/checkpoint_spec.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"

namespace sluice::server {

class PartExaminer {
 public:
  // Receives the outcome on the examiner's thread.
  using Listener = std::function<void(const protocol::PartExamined&)>;

  // Retries for `patience` if the disk does not answer or a file is missing. After that, the part
  // counts as unreadable.
  PartExaminer(protocol::CheckpointSpec checkpoint, absl::Duration patience, Listener listener,
               const Clock* clock, Logger logger);
  // Finishes reading the current part.
  ~PartExaminer();

  // Does not block on the disk. While another examination runs, the part waits and replaces a part
  // that waited. The coordinator asks for one part at a time, but it may have restarted.
  void Examine(const protocol::CheckpointPart& part);

 private:
  void Run();
  // Returns unset if no part waits or the examiner ends.
  std::optional<protocol::CheckpointPart> TakeNext();
  absl::Status ReadUntilKnown(const protocol::CheckpointPart& part);
  absl::Status Read(const protocol::CheckpointPart& part) const;
  bool PauseBeforeRetry();

  const protocol::CheckpointSpec checkpoint_;
  const absl::Duration patience_;
  const Listener listener_;
  const Clock* const clock_;
  const Logger logger_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<protocol::CheckpointPart> waiting_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
