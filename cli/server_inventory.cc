// SPDX-License-Identifier: Apache-2.0
#include "cli/server_inventory.h"

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/launch/quantity.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/durable_file.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::cli {
namespace {

// Checks the state against its own checksums and the folder's step, because the manifest with the
// part's checksum may be on another machine.
absl::Status CheckState(const std::string& path, const std::string& name, uint64_t bytes,
                        uint64_t step) {
  const absl::StatusOr<std::string> content = protocol::ReadWholeFile(path, bytes);
  if (!content.ok()) return content.status();
  uint64_t found = 0;
  if (absl::StartsWith(name, "shard-")) {
    const absl::StatusOr<protocol::ShardSnapshot> state = protocol::ParseShardSnapshot(*content);
    if (!state.ok()) return state.status();
    found = state->step;
  } else {
    const absl::StatusOr<protocol::WorkerSnapshot> state = protocol::ParseWorkerSnapshot(*content);
    if (!state.ok()) return state.status();
    found = state->step;
  }
  if (found == step) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("it is of step ", found));
}

bool ShowStep(const std::string& folder, uint64_t step, bool verify, std::ostream& out) {
  const std::string at = protocol::StepFolder(folder, step);
  absl::StatusOr<std::vector<std::string>> names = protocol::ListFolder(at);
  if (!names.ok()) {
    out << "  step " << step << ": DAMAGED: " << std::string(names.status().message()) << "\n";
    return false;
  }
  std::sort(names->begin(), names->end());
  uint64_t bytes = 0;
  size_t parts = 0;
  std::string damage;
  for (const std::string& name : *names) {
    const absl::StatusOr<protocol::FileFacts> facts =
        protocol::StatFile(absl::StrCat(at, "/", name));
    if (!facts.ok() || absl::EndsWith(name, protocol::kUnfinishedSuffix)) continue;
    ++parts;
    bytes += facts->bytes;
    if (!verify || !absl::EndsWith(name, ".state")) continue;
    const absl::Status good = CheckState(absl::StrCat(at, "/", name), name, facts->bytes, step);
    if (!good.ok() && damage.empty()) damage = absl::StrCat(name, ": ", good.message());
  }
  out << "  step " << step << ": "
      << (damage.empty() ? "" : absl::StrCat("DAMAGED: ", damage, "; ")) << parts << " parts, "
      << FormatBytes(static_cast<double>(bytes))
      << (verify && damage.empty() ? ", good by their own checksums" : "") << "\n";
  return damage.empty();
}

std::string Trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

bool IsServerFolder(const std::string& path) {
  const std::string name = std::filesystem::path(Trimmed(path)).filename().string();
  uint32_t shard = 0;
  std::error_code none;
  return absl::StartsWith(name, "shard-") && absl::SimpleAtoi(name.substr(6), &shard) &&
         name == absl::StrCat("shard-", shard) && std::filesystem::is_directory(path, none);
}

std::vector<std::string> FindServerFolders(const std::string& dir) {
  const std::string path = Trimmed(dir);
  if (IsServerFolder(path)) return {path};
  std::vector<std::string> folders;
  const absl::StatusOr<std::vector<std::string>> names = protocol::ListFolder(path);
  if (!names.ok()) return folders;
  for (const std::string& name : *names) {
    if (IsServerFolder(absl::StrCat(path, "/", name))) {
      folders.push_back(absl::StrCat(path, "/", name));
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool ShowServerParts(const std::string& folder, bool verify, std::ostream& out) {
  out << folder << ": parts that this server keeps";
  const absl::StatusOr<protocol::RunRecord> run = protocol::ReadRunRecord(folder);
  if (run.ok()) {
    out << absl::StrFormat(" for run %016x of job %s", run->job_uid,
                           absl::CHexEscape(run->job_name));
  }
  out << "; the manifests on shard 0's server say which parts make a complete checkpoint\n";
  const absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(folder);
  bool good = steps.ok();
  if (!good) return false;
  for (const uint64_t step : *steps) good = ShowStep(folder, step, verify, out) && good;
  if (steps->empty()) out << "  nothing yet\n";
  return good;
}

}  // namespace sluice::cli
