// CheckpointWriter: writes a worker's parts of job checkpoints on a thread of its own, into a
// folder or through the servers, and tells the coordinator of each once it is durable, or why it is
// not. Thread-safe.
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
    StoreClient* store = nullptr;  // Not null: what is written goes there, not into `dir`.
    protocol::Sender sender;
    absl::Duration report_timeout;  // For the coordinator to be reached.
    std::function<std::optional<absl::Status>(uint64_t)> rest_of_checkpoint{};  // As of sessions.
    absl::Duration backoff_min;
    absl::Duration backoff_max;
    const Clock* clock = nullptr;
    Logger logger{"worker"};
  };
  explicit CheckpointWriter(Options options);
  // What is being written is finished; the rest is left.
  ~CheckpointWriter();

  // Does not wait. One checkpoint at a time is held in memory: while one is being written, the next
  // counts as failed, which the coordinator is told.
  void Write(protocol::WorkerSnapshot snapshot, std::vector<CheckpointFile> files);
  // Tells the coordinator that this rank has no part of the checkpoint after `step`.
  void ReportFailure(uint64_t step, absl::string_view why);
  // Waits until everything is written, and reported but for what waits for the rest of its
  // checkpoint. False: it takes longer than `limit`.
  bool Finish(absl::Duration limit);
  // What is being written now, and since when; none: nothing.
  struct Writing {
    std::string what;  // For a person.
    absl::Time since;
  };
  std::optional<Writing> writing() const;
  // What was reported of the newest checkpoint, failures too: the report may have been lost, or the
  // coordinator that had it may be gone.
  std::vector<protocol::CheckpointPart> newest_parts() const;

 private:
  struct Work {
    uint64_t step = 0;
    std::optional<protocol::WorkerSnapshot> snapshot{};  // None: it failed.
    std::vector<CheckpointFile> files{};
    std::string error{};
  };

  void Run();
  void Do(Work work);
  // False if it could not be written.
  bool WriteOne(uint64_t step, const std::string& name, absl::string_view bytes);
  // Now, or once the rest of the checkpoint is there.
  void Report(protocol::CheckpointPart part);
  void ReportHeld();
  void ReportNow(const protocol::CheckpointPart& part);
  void Tell(const protocol::CheckpointPart& part);
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
  std::vector<protocol::CheckpointPart>
      held_;  // The thread's: durable parts of one checkpoint without its rest.
  std::thread thread_;
};

}  // namespace sluice::worker
