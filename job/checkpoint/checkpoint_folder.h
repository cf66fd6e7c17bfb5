// The folder of a job's checkpoints: where everything lies, written so that it is whole or absent,
// and read so that damage is named. docs/checkpoints.md describes it.
//
//   DIR/run.json                              the run that these checkpoints are of
//   DIR/step-000000001000/manifest.json       written last: what makes the checkpoint complete
//   DIR/step-000000001000/shard-0-term-0.state, worker-0-term-0.state, parameters.pt
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/snapshot.h"

namespace sluice {

std::string StepFolder(absl::string_view dir, uint64_t step);

// Writes a file of the checkpoint after `step`, makes it durable (file, rename, folder), reads it
// back and compares. Errors name the file: RESOURCE_EXHAUSTED for a full disk, UNAVAILABLE for
// other trouble with it, DATA_LOSS if what was read back differs. Nothing half-written keeps the
// part's name.
absl::StatusOr<CheckpointPart> WritePart(absl::string_view dir, uint32_t term, uint64_t step,
                                         absl::string_view name, absl::string_view bytes);
// The bytes of a part that `manifest` lists. DATA_LOSS: missing, of another size or checksum.
absl::StatusOr<std::string> ReadPart(absl::string_view dir, const CheckpointManifest& manifest,
                                     absl::string_view name);

// Durable as parts are. Makes the checkpoint complete.
absl::Status WriteManifest(absl::string_view dir, const CheckpointManifest& manifest);
// NOT_FOUND: there is none. DATA_LOSS: damaged; FAILED_PRECONDITION: of a newer version.
absl::StatusOr<CheckpointManifest> ReadManifest(absl::string_view dir, uint64_t step);
// DATA_LOSS, naming the first bad file, unless every part is there as the manifest says.
absl::Status VerifyCheckpoint(absl::string_view dir, const CheckpointManifest& manifest);

// Steps that have a folder, complete or not, ascending. A `dir` that is not there has none.
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(absl::string_view dir);
// First the manifest, then the rest, so that what is left of an interrupted removal is incomplete.
absl::Status RemoveCheckpoint(absl::string_view dir, uint64_t step);

// Folders without a manifest, of steps before `before`: what is left of checkpoints that were given
// up.
absl::Status RemoveIncomplete(absl::string_view dir, uint64_t before);

absl::Status WriteRunRecord(absl::string_view dir, const RunRecord& record);
// NOT_FOUND: no run was here. DATA_LOSS: damaged.
absl::StatusOr<RunRecord> ReadRunRecord(absl::string_view dir);

}  // namespace sluice
