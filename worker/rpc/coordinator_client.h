// CoordinatorClient: the calls of a worker to its coordinator that it waits for: Join and Leave.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice {

class CoordinatorClient {
 public:
  struct Options {
    std::string address;
    uint32_t rank = 0;
    absl::Duration backoff_min;
    absl::Duration backoff_max;
    const Clock* clock = nullptr;
  };
  explicit CoordinatorClient(Options options);

  // Tries for `timeout` to reach the coordinator; then waits for its answer, which may take as long
  // again, since it waits for the others. UNAVAILABLE: it cannot be reached.
  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request, absl::Duration timeout);
  absl::StatusOr<v1::LeaveReply> Leave(const v1::LeaveRequest& request, absl::Duration timeout);
  // Ends the call that is under way, and every later one, with CANCELLED. Thread-safe.
  void Cancel();

 private:
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(const Request& request, absl::Duration timeout,
                             absl::Duration answer_timeout, absl::string_view what,
                             grpc::Status (v1::Coordinator::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&, Reply*));
  // False if it was cancelled.
  bool Begin(grpc::ClientContext* context);
  void End();
  bool SleepFor(absl::Duration duration);

  const Options options_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  Mutex mutex_;
  CondVar cancelled_changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* under_way_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace sluice
