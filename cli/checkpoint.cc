// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/launch/quantity.h"
#include "cli/server_inventory.h"
#include "compress/codec_spec.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::cli {
namespace {

// Converts `text` for an ostream, because Abseil's string_view has no << on some platforms.
std::string Text(absl::string_view text) { return std::string(text); }

uint64_t BytesOf(const protocol::CheckpointManifest& manifest) {
  uint64_t bytes = 0;
  for (const protocol::CheckpointPart& part : manifest.parts) bytes += part.bytes;
  return bytes;
}

std::string Amount(const protocol::CheckpointManifest& manifest) {
  return absl::StrCat(manifest.parts.size(), " parts, ",
                      FormatBytes(static_cast<double>(BytesOf(manifest))));
}

absl::StatusOr<std::vector<uint64_t>> StepsOf(const CheckpointCommand& command) {
  absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(command.dir);
  if (!steps.ok() || !command.step.has_value()) return steps;
  if (std::count(steps->begin(), steps->end(), *command.step) > 0) {
    return std::vector<uint64_t>{*command.step};
  }
  return absl::NotFoundError(absl::StrCat(
      command.dir, " has no checkpoint of step ", *command.step,
      steps->empty() ? "; it has none" : absl::StrCat("; it has: ", absl::StrJoin(*steps, ", "))));
}

std::string DescribeRun(const protocol::RunRecord& run) {
  return absl::StrFormat("run %016x of job %s: %s, term %d", run.job_uid,
                         absl::CHexEscape(run.job_name), run.finished ? "finished" : "unfinished",
                         run.term);
}

std::string DescribeCompressor(const compress::SavedCompressor& saved) {
  std::set<std::string> specs;
  for (const compress::SavedCompressor::Chunk& chunk : saved.chunks) {
    specs.insert(ToString(chunk.config.spec));
  }
  return absl::StrCat(saved.chunks.size(), " chunks",
                      specs.empty() ? "" : absl::StrCat(" as ", absl::StrJoin(specs, ", ")));
}

absl::Status Expect(absl::string_view what, uint64_t found, uint64_t wanted) {
  if (found == wanted) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("it is of ", what, " ", found, ", should be of ", wanted));
}

template <typename Snapshot>
absl::Status CheckIdentity(const Snapshot& snapshot, absl::string_view place, uint32_t found,
                           uint32_t wanted, const protocol::CheckpointManifest& manifest) {
  absl::Status same = Expect("job_uid", snapshot.job_uid, manifest.job_uid);
  if (same.ok()) same = Expect("term", snapshot.term, manifest.term);
  if (same.ok()) same = Expect("step", snapshot.step, manifest.step);
  if (same.ok()) same = Expect(place, found, wanted);
  return same;
}

// Checks the whole state and returns a description of it.
absl::StatusOr<std::string> ReadShardState(absl::string_view dir,
                                           const protocol::CheckpointManifest& manifest,
                                           uint32_t shard) {
  const absl::StatusOr<std::string> bytes =
      protocol::ReadPart(dir, manifest, protocol::ShardPartName(shard, manifest.term));
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<protocol::ShardSnapshot> snapshot = protocol::ParseShardSnapshot(*bytes);
  if (!snapshot.ok()) return snapshot.status();
  absl::Status same = CheckIdentity(*snapshot, "shard", snapshot->shard, shard, manifest);
  if (!same.ok()) return same;
  return absl::StrCat(snapshot->versions.size(), " bundles, ",
                      DescribeCompressor(snapshot->downlink));
}

absl::StatusOr<std::string> ReadWorkerState(absl::string_view dir,
                                            const protocol::CheckpointManifest& manifest,
                                            uint32_t rank) {
  const absl::StatusOr<std::string> bytes =
      protocol::ReadPart(dir, manifest, protocol::WorkerPartName(rank, manifest.term));
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<protocol::WorkerSnapshot> snapshot = protocol::ParseWorkerSnapshot(*bytes);
  if (!snapshot.ok()) return snapshot.status();
  absl::Status same = CheckIdentity(*snapshot, "rank", snapshot->rank, rank, manifest);
  if (!same.ok()) return same;
  return absl::StrCat("trainer's state of ",
                      FormatBytes(static_cast<double>(snapshot->trainer.size())), ", ",
                      DescribeCompressor(snapshot->uplink));
}

absl::Status AtPart(const std::string& name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

// Returns true if the parts of this server can be read on this machine. Other parts are on the
// machines of their servers.
bool IsHere(absl::string_view dir, const protocol::CheckpointManifest& manifest, uint32_t server) {
  if (!manifest.at_shards) return true;
  std::error_code none;
  return std::filesystem::is_directory(protocol::PartsFolder(dir, server), none);
}

bool IsHere(absl::string_view dir, const protocol::CheckpointManifest& manifest,
            const std::string& name) {
  const absl::StatusOr<protocol::CheckpointPart> part = protocol::FindPart(manifest, name);
  // A part that is not listed counts as readable here. The attempt to read it then reports that it
  // is missing.
  return !part.ok() || IsHere(dir, manifest, part->server);
}

// Returns a note about parts that are on other machines, or an empty string if there are none.
std::string Elsewhere(absl::string_view dir, const protocol::CheckpointManifest& manifest) {
  std::set<uint32_t> servers;
  size_t parts = 0;
  for (const protocol::CheckpointPart& part : manifest.parts) {
    if (IsHere(dir, manifest, part.server)) continue;
    servers.insert(part.server);
    ++parts;
  }
  if (parts == 0) return "";
  return absl::StrCat("; ", parts, " of the parts are not here but on the server of shard ",
                      absl::StrJoin(servers, ", "));
}

absl::Status VerifyStates(absl::string_view dir, const protocol::CheckpointManifest& manifest) {
  for (uint32_t shard = 0; shard < manifest.shards; ++shard) {
    if (!IsHere(dir, manifest, protocol::ShardPartName(shard, manifest.term))) continue;
    const absl::Status good = AtPart(protocol::ShardPartName(shard, manifest.term),
                                     ReadShardState(dir, manifest, shard).status());
    if (!good.ok()) return good;
  }
  for (uint32_t rank = 0; rank < manifest.world_size; ++rank) {
    if (!IsHere(dir, manifest, protocol::WorkerPartName(rank, manifest.term))) continue;
    const absl::Status good = AtPart(protocol::WorkerPartName(rank, manifest.term),
                                     ReadWorkerState(dir, manifest, rank).status());
    if (!good.ok()) return good;
  }
  return absl::OkStatus();
}

void ShowParts(absl::string_view dir, const protocol::CheckpointManifest& manifest,
               std::ostream& out) {
  out << absl::StrFormat("  job hash %016x, tensor table %016x, %d workers, %d shards\n",
                         manifest.job_hash, manifest.table_hash, manifest.world_size,
                         manifest.shards);
  out << absl::StrFormat("  chunks of %d, bundles of %d elements; written by version %s\n",
                         manifest.layout.chunk_elements, manifest.layout.bundle_elements,
                         absl::CHexEscape(manifest.software_version));
  const size_t parts = manifest.parts.size();
  for (const protocol::CheckpointPart& part : manifest.parts) {
    out << absl::StrFormat("  %-28s %10s  %08x\n", part.name,
                           FormatBytes(static_cast<double>(part.bytes)), part.checksum);
    if (!part.file.empty()) out << "    in the file " << part.file << "\n";
    if (!IsHere(dir, manifest, part.server)) {
      out << "    not here but on the server of shard " << part.server << "\n";
      continue;
    }
    const auto show = [&](const absl::StatusOr<std::string>& state) {
      out << "    " << (state.ok() ? *state : "DAMAGED: " + Text(state.status().message())) << "\n";
    };
    // The number of parts bounds these loops, because a damaged manifest may contain any number of
    // shards and workers.
    for (uint32_t shard = 0; shard < std::min<size_t>(manifest.shards, parts); ++shard) {
      if (part.name == protocol::ShardPartName(shard, manifest.term)) {
        show(ReadShardState(dir, manifest, shard));
      }
    }
    for (uint32_t rank = 0; rank < std::min<size_t>(manifest.world_size, parts); ++rank) {
      if (part.name == protocol::WorkerPartName(rank, manifest.term)) {
        show(ReadWorkerState(dir, manifest, rank));
      }
    }
  }
}

int Complain(const absl::Status& status, std::ostream& err) {
  err << "error: " << Text(status.message()) << "\n";
  return 1;
}

// Prints the folder's run record, and stores it in `*run`. Returns 1 if the record exists but
// cannot be read.
int ShowRun(const std::string& dir, std::optional<protocol::RunRecord>* run, std::ostream& out,
            std::ostream& err) {
  const absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(dir);
  if (record.ok()) {
    out << DescribeRun(*record) << "\n";
    *run = *record;
    return 0;
  }
  if (!absl::IsNotFound(record.status())) return Complain(record.status(), err);
  out << "no run.json: no run has started here\n";
  return 0;
}

absl::Status CheckRun(const std::optional<protocol::RunRecord>& run,
                      const protocol::CheckpointManifest& manifest) {
  if (!run.has_value() || run->job_uid == manifest.job_uid) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("it belongs to another run, %016x", manifest.job_uid));
}

// Returns true for a server's folder, and for a folder that contains servers' folders but no run
// record.
bool OnlyParts(const CheckpointCommand& command) {
  const std::vector<std::string> folders = FindServerFolders(command.dir);
  if (IsServerFolder(command.dir)) return true;
  return !folders.empty() && absl::IsNotFound(protocol::ReadRunRecord(command.dir).status());
}

int ShowServers(const CheckpointCommand& command, bool verify, std::ostream& out) {
  bool good = true;
  for (const std::string& folder : FindServerFolders(command.dir)) {
    good = ShowServerParts(folder, verify, out) && good;
  }
  return good ? 0 : 1;
}

}  // namespace

int InspectCheckpoints(const CheckpointCommand& command, std::ostream& out, std::ostream& err) {
  if (OnlyParts(command)) return ShowServers(command, /*verify=*/false, out);
  const absl::StatusOr<std::vector<uint64_t>> steps = StepsOf(command);
  if (!steps.ok()) return Complain(steps.status(), err);
  std::optional<protocol::RunRecord> run;
  int code = ShowRun(command.dir, &run, out, err);
  for (const uint64_t step : *steps) {
    const absl::StatusOr<protocol::CheckpointManifest> manifest =
        protocol::ReadManifest(command.dir, step);
    if (manifest.ok()) {
      out << "step " << step << ", term " << manifest->term << ": complete, " << Amount(*manifest)
          << Elsewhere(command.dir, *manifest) << "\n";
      if (command.step.has_value()) ShowParts(command.dir, *manifest, out);
    } else if (absl::IsNotFound(manifest.status())) {
      out << "step " << step << ": incomplete, it has no manifest\n";
    } else {
      out << "step " << step << ": DAMAGED: " << Text(manifest.status().message()) << "\n";
      code = 1;
    }
  }
  if (!steps->empty()) return code;
  if (run.has_value()) {
    out << "no checkpoint\n";
    return code;
  }
  return Complain(absl::NotFoundError(absl::StrCat(command.dir, " holds no checkpoints")), err);
}

int VerifyCheckpoints(const CheckpointCommand& command, std::ostream& out, std::ostream& err) {
  if (OnlyParts(command)) return ShowServers(command, /*verify=*/true, out);
  const absl::StatusOr<std::vector<uint64_t>> steps = StepsOf(command);
  if (!steps.ok()) return Complain(steps.status(), err);
  std::optional<protocol::RunRecord> run;
  bool damage = ShowRun(command.dir, &run, out, err) != 0;
  size_t good = 0;
  for (const uint64_t step : *steps) {
    const absl::StatusOr<protocol::CheckpointManifest> manifest =
        protocol::ReadManifest(command.dir, step);
    absl::Status status = manifest.status();
    if (absl::IsNotFound(status)) {
      out << "step " << step << ": incomplete, it has no manifest\n";
      continue;
    }
    if (status.ok()) status = CheckRun(run, *manifest);
    if (status.ok()) {
      status = protocol::VerifyCheckpoint(command.dir, *manifest, [&](uint32_t server) {
        return IsHere(command.dir, *manifest, server);
      });
    }
    if (status.ok()) status = VerifyStates(command.dir, *manifest);
    if (status.ok()) {
      ++good;
      out << "step " << step << ": good, " << Amount(*manifest) << Elsewhere(command.dir, *manifest)
          << "\n";
    } else {
      damage = true;
      out << "step " << step << ": DAMAGED: " << Text(status.message()) << "\n";
    }
  }
  if (damage) return 1;
  if (good > 0) return 0;
  return Complain(absl::NotFoundError(absl::StrCat(command.dir, " holds no complete checkpoint")),
                  err);
}

}  // namespace sluice::cli
