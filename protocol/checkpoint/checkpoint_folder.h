// The folder of a job's checkpoints: where everything lies, written so that it is whole or absent,
// and read so that damage is named. docs/checkpoints.md describes it.
//
//   DIR/run.json                              the run that these checkpoints are of
//   DIR/step-000000001000/manifest.json       written last: what makes the checkpoint complete
//   DIR/step-000000001000/shard-0-term-0.state, worker-0-term-0.state, parameters.pt
//
// With store `shards` the states of server S are in DIR/shard-S/step-000000001000/ instead, and DIR
// may be on another machine for each server.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/checkpoint/checkpoint_spec.h"
#include "protocol/checkpoint/durable_file.h"
#include "protocol/snapshot.h"

namespace sluice::protocol {

std::string StepFolder(absl::string_view dir, uint64_t step);

// Where server `shard` has its parts: `dir` itself, or with store `shards` a folder in it, so that
// servers on one machine may be given one `dir`.
std::string PartsFolder(const CheckpointSpec& checkpoint, uint32_t shard);
std::string PartsFolder(absl::string_view dir, uint32_t shard);  // With store `shards`.

// INVALID_ARGUMENT if no part of a checkpoint may be called so.
absl::Status CheckPartName(absl::string_view name);
absl::Status CheckPartNames(const CheckpointPart& part);  // Likewise, of its file too.
std::string PartPath(absl::string_view dir, const CheckpointPart& part);

// Finishes the file of a part, and sets part->file where another writer's has the part's name: what
// is there may belong to a complete checkpoint. Which file counts, only the manifest says.
absl::Status Publish(DurableFile file, CheckpointPart* part);
// Writes a file of the checkpoint after `step`, makes it durable (file, name, folder), reads it
// back and compares. Errors name the file: RESOURCE_EXHAUSTED for a full disk, UNAVAILABLE for
// other trouble with it, DATA_LOSS if what was read back differs. Nothing half-written gets a name,
// and nothing that has one is written over.
absl::StatusOr<CheckpointPart> WritePart(absl::string_view dir, uint32_t term, uint64_t step,
                                         absl::string_view name, absl::string_view bytes);
// The bytes of a part that `manifest` lists. DATA_LOSS: missing, of another size or checksum.
// `dir` is the manifest's, also if the part lies in a server's folder there.
absl::StatusOr<std::string> ReadPart(absl::string_view dir, const CheckpointManifest& manifest,
                                     absl::string_view name);
absl::StatusOr<CheckpointPart> FindPart(const CheckpointManifest& manifest, absl::string_view name);
// Of one that is known otherwise; `dir`: where the parts are.
absl::StatusOr<std::string> ReadPart(absl::string_view dir, const CheckpointPart& part);
// As ReadPart, without its bytes in memory.
absl::Status VerifyPart(absl::string_view dir, const CheckpointPart& part);
// The error of reading a part whose bytes came another way: other size, other checksum.
absl::Status CheckPartFacts(absl::string_view where, uint64_t bytes, uint32_t checksum,
                            const CheckpointPart& part);

// Durable as parts are; takes the place of one before. Makes the checkpoint complete.
absl::Status WriteManifest(absl::string_view dir, const CheckpointManifest& manifest,
                           const MayReplace& may_replace = nullptr);
// NOT_FOUND: there is none. DATA_LOSS: damaged; FAILED_PRECONDITION: of a newer version.
absl::StatusOr<CheckpointManifest> ReadManifest(absl::string_view dir, uint64_t step);
// DATA_LOSS, naming the first bad file, unless every part is there as the manifest says; with store
// `shards`, every part that lies with one of `servers`.
absl::Status VerifyCheckpoint(absl::string_view dir, const CheckpointManifest& manifest,
                              const std::function<bool(uint32_t server)>& servers = nullptr);

// Steps that have a folder, complete or not, ascending. A `dir` that is not there has none.
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(absl::string_view dir);
// First the manifest, then the rest, so that what is left of an interrupted removal is incomplete.
absl::Status RemoveCheckpoint(absl::string_view dir, uint64_t step);

// Folders of steps before `before` that are not of `steps`.
absl::Status RemoveOthers(absl::string_view dir, const std::vector<uint64_t>& steps,
                          uint64_t before);
// Folders without a manifest, of steps before `before`: what is left of checkpoints that were given
// up.
absl::Status RemoveIncomplete(absl::string_view dir, uint64_t before);

absl::Status WriteRunRecord(absl::string_view dir, const RunRecord& record,
                            const MayReplace& may_replace = nullptr);
// NOT_FOUND: no run was here. DATA_LOSS: damaged.
absl::StatusOr<RunRecord> ReadRunRecord(absl::string_view dir);

}  // namespace sluice::protocol
