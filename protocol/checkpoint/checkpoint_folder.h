// SPDX-License-Identifier: Apache-2.0
// The folder of a job's checkpoints: its layout, functions that write files completely or not at
// all, and functions that read files and report damage. docs/checkpoints.md describes the folder.
//
//   DIR/run.json                              the run that these checkpoints belong to
//   DIR/step-000000001000/manifest.json       written last: makes the checkpoint complete
//   DIR/step-000000001000/shard-0-term-0.state, worker-0-term-0.state, parameters.pt
//
// With store `shards`, the states of server S are in DIR/shard-S/step-000000001000/ instead, and
// each server's DIR may be on a different machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/checkpoint/durable_file.h"
#include "protocol/checkpoint_spec.h"
#include "protocol/snapshot.h"

namespace sluice::protocol {

std::string StepFolder(absl::string_view dir, uint64_t step);

// Returns the folder with the parts of server `shard`: `dir` itself, or with store `shards` a
// folder in `dir`, so that servers on one machine may share one `dir`.
std::string PartsFolder(const CheckpointSpec& checkpoint, uint32_t shard);
std::string PartsFolder(absl::string_view dir, uint32_t shard);  // Only with store `shards`.

// Fails with INVALID_ARGUMENT if a part of a checkpoint must not have this name.
absl::Status CheckPartName(absl::string_view name);
// Checks the part's name and the name of its file.
absl::Status CheckPartNames(const CheckpointPart& part);
std::string PartPath(absl::string_view dir, const CheckpointPart& part);

// Finishes the file of a part. If another writer already uses the part's name, the file gets a
// different name, which is stored in part->file, because the existing file may belong to a complete
// checkpoint. Only the manifest decides which file counts.
absl::Status Publish(DurableFile file, CheckpointPart* part);
// Writes a file of the checkpoint after `step`, makes it durable (file, name and folder), reads it
// back and compares the bytes. Fails with RESOURCE_EXHAUSTED if the disk is full, UNAVAILABLE for
// other problems with the disk, and DATA_LOSS if the bytes read back differ; the message names the
// file. An incomplete file never gets its final name, and no existing file is overwritten.
absl::StatusOr<CheckpointPart> WritePart(absl::string_view dir, uint32_t term, uint64_t step,
                                         absl::string_view name, absl::string_view bytes);
// Returns the bytes of a part that `manifest` lists. Fails with DATA_LOSS if the file is missing or
// has a different size or checksum. `dir` is the folder of the manifest, even if the part is in a
// server's folder inside it.
absl::StatusOr<std::string> ReadPart(absl::string_view dir, const CheckpointManifest& manifest,
                                     absl::string_view name);
absl::StatusOr<CheckpointPart> FindPart(const CheckpointManifest& manifest, absl::string_view name);
// Reads a part that is not listed in a manifest. `dir` is the folder of the parts.
absl::StatusOr<std::string> ReadPart(absl::string_view dir, const CheckpointPart& part);
// Performs the checks of ReadPart without holding the bytes in memory.
absl::Status VerifyPart(absl::string_view dir, const CheckpointPart& part);
// Checks a part whose bytes did not come from a file. Fails if the size or the checksum is wrong.
absl::Status CheckPartFacts(absl::string_view where, uint64_t bytes, uint32_t checksum,
                            const CheckpointPart& part);

// Writes the manifest as durably as a part and replaces an earlier manifest. This makes the
// checkpoint complete.
absl::Status WriteManifest(absl::string_view dir, const CheckpointManifest& manifest,
                           const MayReplace& may_replace = nullptr);
// Fails with NOT_FOUND if there is no manifest, DATA_LOSS if the manifest is damaged, and
// FAILED_PRECONDITION if its version is newer than this program.
absl::StatusOr<CheckpointManifest> ReadManifest(absl::string_view dir, uint64_t step);
// Fails with DATA_LOSS, naming the first bad file, unless every part matches the manifest. With
// store `shards`, only parts whose server is in `servers` are checked.
absl::Status VerifyCheckpoint(absl::string_view dir, const CheckpointManifest& manifest,
                              const std::function<bool(uint32_t server)>& servers = nullptr);

// Returns the steps that have a folder, in ascending order. The checkpoints in them may be
// incomplete. The list is empty if `dir` does not exist.
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(absl::string_view dir);
// Removes the manifest first and then the rest, so that an interrupted removal leaves an incomplete
// checkpoint.
absl::Status RemoveCheckpoint(absl::string_view dir, uint64_t step);

// Removes the folders of all steps below `before` that are not in `steps`.
absl::Status RemoveOthers(absl::string_view dir, const std::vector<uint64_t>& steps,
                          uint64_t before);
// Removes the folders of steps below `before` that have no manifest. These remain from abandoned
// checkpoints.
absl::Status RemoveIncomplete(absl::string_view dir, uint64_t before);

absl::Status WriteRunRecord(absl::string_view dir, const RunRecord& record,
                            const MayReplace& may_replace = nullptr);
// Fails with NOT_FOUND if no run has used this folder, and with DATA_LOSS if the record is damaged.
absl::StatusOr<RunRecord> ReadRunRecord(absl::string_view dir);

}  // namespace sluice::protocol
