// Heartbeat: renews a worker's lease from a thread and a connection of its own, and hears there
// that the job has failed or gone back.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/grpc/transport.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::worker {

class Heartbeat {
 public:
  struct Options {
    std::string address;
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    absl::Duration interval;
    absl::Duration lease;
    absl::Duration patience;          // So long the coordinator may be away: the lease, or more.
    uint64_t server_incarnation = 0;  // An answer from a lower one does not count.
    uint32_t term = 0;                // In an answer a higher one means that the job went back.
    const Clock* clock = nullptr;
    Logger logger{"worker"};
    std::function<v1::HeartbeatRequest()> compose;
    // An answer that finds all in order.
    std::function<void(const v1::HeartbeatReply&)> on_reply;
    // The job has failed or gone back (RollbackError), or no heartbeat got through for as long as
    // patience lasts (UNAVAILABLE). Called once.
    std::function<void(absl::Status)> on_failure;
  };
  explicit Heartbeat(Options options);
  // Stops, whatever is under way.
  ~Heartbeat();

  // Goes with a heartbeat that is sent at once. Kept until one got through; the newest 64 are.
  void ReportParameters(uint64_t step, std::string sha256);

 private:
  void Run();
  bool WaitForNext();  // False: stop.
  // Not OK: final.
  absl::Status Beat();
  absl::Status Missed(const std::string& reason);
  void Answered();

  struct ParametersReport {
    uint64_t step = 0;
    std::string sha256;
  };

  const Options options_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  // Of the thread.
  absl::Time last_answer_;
  uint64_t server_incarnation_;  // The highest that answered.
  bool told_ = false;            // The log knows that the coordinator is away.
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<ParametersReport> reports_ ABSL_GUARDED_BY(mutex_);
  bool report_is_new_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Of the call under way.
  std::thread thread_;
};

}  // namespace sluice::worker
