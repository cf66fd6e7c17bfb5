// StatusClient: asks a coordinator how its job is doing, or for a checkpoint, without ever blocking
// the caller.
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

// One question of each kind at a time. Not thread-safe.
class StatusClient {
 public:
  // `coordinator` is HOST:PORT. Dials when first asked; goes round any proxy.
  explicit StatusClient(const std::string& coordinator,
                        std::shared_ptr<const net::Transport> transport = net::Transport::Plain());
  ~StatusClient();

  // Asks, unless an answer is still awaited.
  void Ask(absl::Duration timeout);
  // Takes the answer if it is there; waits up to `wait` for it. False: not yet, or nothing was
  // asked.
  bool Take(absl::Duration wait, absl::StatusOr<v1::GetStatusReply>* answer);

  // The same for a job checkpoint of `job_name`, as soon as can be; the answer is the step it is
  // of.
  void AskCheckpoint(const std::string& job_name, absl::Duration timeout);
  bool TakeCheckpoint(absl::Duration wait, absl::StatusOr<uint64_t>* answer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::cli
