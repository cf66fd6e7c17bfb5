// StatusClient: asks a coordinator how its job is doing, without ever blocking the caller.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice {

// One question at a time. Not thread-safe.
class StatusClient {
 public:
  // `coordinator` is HOST:PORT. Dials when first asked; goes round any proxy.
  explicit StatusClient(const std::string& coordinator);
  ~StatusClient();

  // Asks, unless an answer is still awaited.
  void Ask(absl::Duration timeout);
  // Takes the answer if it is there; waits up to `wait` for it. False: not yet, or nothing was
  // asked.
  bool Take(absl::Duration wait, absl::StatusOr<v1::GetStatusReply>* answer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
