// SPDX-License-Identifier: Apache-2.0
// RestoreSession: brings a joined session to the state of the checkpoint that its job continues
// from.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session.h"
#include "worker/rpc/remote_session_options.h"

namespace sluice::worker {

struct RestoredState {
  std::string trainer;      // The state that the program passed to SaveCheckpoint.
  uint32_t world_size = 0;  // Number of ranks that wrote the checkpoint.
};

// Reads this worker's part of the checkpoint after `membership.restore_step` and passes it to
// `session`, before the first step. Retries for options.server.rejoin_timeout while the part is
// missing or its disk or server is unavailable. Fails with DATA_LOSS if the checkpoint is damaged,
// and with the session's error if the session ends meanwhile. Does not end the session. On every
// failure, `*last_read` names the file that a report should name: the last one read, or a relay's
// own part.
absl::StatusOr<RestoredState> RestoreSession(const RemoteSessionOptions& options,
                                             const Membership& membership, RemoteSession* session,
                                             std::string* last_read);

}  // namespace sluice::worker
