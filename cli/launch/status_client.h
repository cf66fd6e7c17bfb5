// SPDX-License-Identifier: Apache-2.0
// StatusClient: asks a coordinator for the status of its job or for a checkpoint. Requests do not
// block the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "net/grpc/transport.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

// At most one request of each kind is in flight. Not thread-safe.
class StatusClient {
 public:
  // `coordinator` is HOST:PORT. The client connects with the first request and does not use a
  // proxy.
  explicit StatusClient(const std::string& coordinator,
                        std::shared_ptr<const net::Transport> transport = net::Transport::Plain());
  ~StatusClient();

  // Sends a request unless one is in flight.
  void Ask(absl::Duration timeout);
  // Waits up to `wait` for the reply and returns it in `answer`. Returns false if there is no reply
  // yet or no request was sent.
  bool WaitForStatus(absl::Duration wait, absl::StatusOr<v1::GetStatusReply>* answer);

  // Like Ask and WaitForStatus, but request a checkpoint of the job `job_name` at the earliest
  // possible step. The answer is that step.
  void AskCheckpoint(const std::string& job_name, absl::Duration timeout);
  bool WaitForCheckpoint(absl::Duration wait, absl::StatusOr<uint64_t>* answer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::cli
