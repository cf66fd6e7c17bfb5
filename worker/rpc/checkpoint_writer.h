// CheckpointWriter: writes a worker's parts of job checkpoints on a thread of its own, into a
// folder or through the servers, and tells the coordinator of each once it is durable, or why it is
// not. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "job/exchange.h"
#include "job/snapshot.h"
#include "worker/core/session.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/store_client.h"

namespace sluice {

class CheckpointWriter {
 public:
  struct Options {
    std::string coordinator;  // host:port
    std::shared_ptr<const Transport> transport = Transport::Plain();
    std::string dir;
    StoreClient* store = nullptr;  // Not null: what is written goes there, not into `dir`.
    Sender sender;
    absl::Duration report_timeout;  // For the coordinator to be reached.
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
  void Write(WorkerSnapshot snapshot, std::vector<CheckpointFile> files);
  // Tells the coordinator that this rank has no part of the checkpoint after `step`.
  void ReportFailure(uint64_t step, absl::string_view why);
  // Waits until everything is written and reported. False: it takes longer than `limit`.
  bool Finish(absl::Duration limit);
  // What is being written now, and since when; none: nothing.
  struct Writing {
    std::string what;  // For a person.
    absl::Time since;
  };
  std::optional<Writing> writing() const;
  // Of the newest checkpoint of which one is; a coordinator that was told of them may be gone.
  std::vector<CheckpointPart> durable_parts() const;

 private:
  struct Work {
    uint64_t step = 0;
    std::optional<WorkerSnapshot> snapshot{};  // None: it failed.
    std::vector<CheckpointFile> files{};
    std::string error{};
  };

  void Run();
  void Do(Work work);
  // False if it could not be written.
  bool WriteOne(uint64_t step, const std::string& name, absl::string_view bytes);
  void Tell(const CheckpointPart& part);
  CheckpointPart Failed(uint64_t step, std::string name, absl::string_view why) const;

  const Options options_;
  CoordinatorClient coordinator_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<CheckpointPart> durable_parts_ ABSL_GUARDED_BY(mutex_);
  std::deque<Work> waiting_ ABSL_GUARDED_BY(mutex_);
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Writing> writing_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
