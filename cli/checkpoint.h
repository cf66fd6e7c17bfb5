// `sluice checkpoint`: what lies in a folder of checkpoints, and whether a run could go on from it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace sluice::cli {

struct CheckpointCommand {
  std::string dir;
  std::optional<uint64_t> step;  // Only the checkpoint after this one.
};

// Lists the run and its checkpoints; of one step, all its parts. Reads no more than it shows.
// Returns the exit code: 0, or 1 if `dir` holds nothing of the kind or its records cannot be read.
int InspectCheckpoints(const CheckpointCommand& command, std::ostream& out, std::ostream& err);

// Reads everything as a run that goes on would: every part whole, every state of the run, term,
// step and place that it stands for. Takes memory for the largest part twice. Returns the exit
// code: 0 if there is a complete checkpoint and nothing is damaged, else 1.
int VerifyCheckpoints(const CheckpointCommand& command, std::ostream& out, std::ostream& err);

}  // namespace sluice::cli
