// SPDX-License-Identifier: Apache-2.0
// CheckpointWriter: writes a worker's parts of job checkpoints on its own thread, into a folder or
// through the servers. Reports each part to the coordinator once it is durable, or the reason why
// it failed. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "worker/core/session.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/store_client.h"

namespace sluice::worker {

class CheckpointWriter {
 public:
  struct Options {
    std::string coordinator;  // host:port
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    std::string dir;
    StoreClient* store = nullptr;  // If not null, parts are written there instead of to `dir`.
    protocol::Sender sender;
    absl::Duration report_timeout;  // Limit for reaching the coordinator.
    // As in RemoteSessionOptions.
    std::function<std::optional<absl::Status>(uint64_t)> rest_of_checkpoint{};
    absl::Duration backoff_min;
    absl::Duration backoff_max;
    const Clock* clock = nullptr;
    Logger logger{"worker"};
  };
  explicit CheckpointWriter(Options options);
  // Finishes the part being written and drops the others.
  ~CheckpointWriter();

  // Queues a checkpoint without blocking. Only one checkpoint is held in memory. If another
  // checkpoint is still being written, the new one fails, and the writer reports the failure to the
  // coordinator.
  void Write(protocol::WorkerSnapshot snapshot, std::vector<CheckpointFile> files);
  // Reports to the coordinator that this rank has no part of the checkpoint after `step`.
  void ReportFailure(uint64_t step, absl::string_view why);
  // Waits until everything is written and reported, except parts that wait for the rest of their
  // checkpoint. Returns false if that takes longer than `limit`.
  bool Finish(absl::Duration limit);
  // The part being written and the start of the write. Absent if nothing is being written.
  struct Writing {
    std::string what;  // Human-readable description.
    absl::Time since;
  };
  std::optional<Writing> writing() const;
  // Reports about the newest checkpoint, including failures. Heartbeats repeat them, because a
  // report may be lost and the coordinator that received it may crash.
  std::vector<protocol::CheckpointPart> newest_parts() const;

 private:
  struct Work {
    uint64_t step = 0;
    std::optional<protocol::WorkerSnapshot> snapshot{};  // Absent if the checkpoint failed.
    std::vector<CheckpointFile> files{};
    std::string error{};
  };

  void Run();
  void Do(Work work);
  // Returns false if the file could not be written.
  bool WriteOne(uint64_t step, const std::string& name, absl::string_view bytes);
  // Reports the part now, or once the rest of the checkpoint is durable.
  void Report(protocol::CheckpointPart part);
  void ReportHeld();
  void ReportNow(const protocol::CheckpointPart& part);
  void SendPartReport(const protocol::CheckpointPart& part);
  protocol::CheckpointPart Failed(uint64_t step, std::string name, absl::string_view why) const;

  const Options options_;
  CoordinatorClient coordinator_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<protocol::CheckpointPart> newest_parts_ ABSL_GUARDED_BY(mutex_);
  std::deque<Work> waiting_ ABSL_GUARDED_BY(mutex_);
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Writing> writing_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Durable parts of one checkpoint whose other parts are not durable yet. Only the thread uses
  // them.
  std::vector<protocol::CheckpointPart> held_;
  std::thread thread_;
};

}  // namespace sluice::worker
