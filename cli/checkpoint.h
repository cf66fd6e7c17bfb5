// SPDX-License-Identifier: Apache-2.0
// `sluice checkpoint`: shows the contents of a folder of checkpoints, and whether a run can
// continue from the folder.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace sluice::cli {

struct CheckpointCommand {
  std::string dir;
  std::optional<uint64_t> step;  // If set, only the checkpoint after this step.
};

// Lists the run and its checkpoints, or all parts of one step. Reads only what it shows. Returns
// the exit code: 0, or 1 if `dir` has no checkpoints or its records cannot be read.
int InspectCheckpoints(const CheckpointCommand& command, std::ostream& out, std::ostream& err);

// Reads everything that a continued run would read, and checks each part's checksum and each
// state's run, term, step, and shard or rank. Needs memory for twice the largest part. Returns the
// exit code: 0 if there is a complete checkpoint and nothing is damaged, otherwise 1.
int VerifyCheckpoints(const CheckpointCommand& command, std::ostream& out, std::ostream& err);

}  // namespace sluice::cli
