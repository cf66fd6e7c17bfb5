// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_disk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace sluice {
namespace {

absl::Span<const std::byte> BytesOnDisk(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

const std::string& FileOf(const protocol::CheckpointPart& part) {
  return part.file.empty() ? part.name : part.file;
}

}  // namespace

protocol::CheckpointPart SimDisk::WritePart(const SimProcess& writer, protocol::CheckpointPart part,
                                            std::string bytes) {
  const bool refused = Refuses(writer);
  if (refused || fails_late()) {
    if (manifests_.contains(part.step)) ++world_.report.late_failed_writes;
    part.error = refused ? "no space is left" : "the folder cannot be made durable";
  }
  if (refused) return part;
  part.bytes = bytes.size();
  part.checksum = Crc32c(BytesOnDisk(bytes));
  std::map<std::string, std::string>& files = parts_[part.step];
  const auto existing = files.find(part.name);
  if (existing != files.end() && existing->second != bytes) {
    part.file = absl::StrCat(part.name, ".", part.checksum);
  }
  damaged_.erase({part.step, FileOf(part)});
  files[FileOf(part)] = std::move(bytes);
  return part;
}

const std::string* SimDisk::FindPart(const protocol::CheckpointPart& part) const {
  const auto of_step = parts_.find(part.step);
  if (of_step == parts_.end()) return nullptr;
  const auto file = of_step->second.find(FileOf(part));
  return file == of_step->second.end() ? nullptr : &file->second;
}

void SimDisk::Lose(const std::function<bool(const protocol::CheckpointPart& part)>& is_lost) {
  for (const auto& [step, manifest] : manifests_) {
    for (const protocol::CheckpointPart& part : manifest.parts) {
      if (!is_lost(part)) continue;
      parts_[step].erase(FileOf(part));
      damaged_.insert({step, FileOf(part)});
      spoilt_.insert(step);
    }
  }
}

absl::StatusOr<std::string> SimDisk::ReadPart(uint64_t step, const std::string& name) {
  const auto manifest = manifests_.find(step);
  if (manifest == manifests_.end()) {
    return absl::DataLossError(absl::StrCat("there is no checkpoint after step ", step));
  }
  for (const protocol::CheckpointPart& part : manifest->second.parts) {
    if (part.name != name) continue;
    const std::string& bytes = parts_[step][FileOf(part)];
    if (bytes.size() == part.bytes && Crc32c(BytesOnDisk(bytes)) == part.checksum) return bytes;
    ++world_.report.damaged_refused;
    return absl::DataLossError(absl::StrCat(name, " is damaged"));
  }
  return absl::DataLossError(absl::StrCat(name, " is not in the manifest"));
}

protocol::PartExamined SimDisk::Examine(protocol::CheckpointPart part) {
  const bool is_whole_manifest =
      part.name == protocol::kManifestName && manifests_.contains(part.step);
  const absl::Status read =
      is_whole_manifest ? absl::OkStatus() : ReadPart(part.step, part.name).status();
  part.error = std::string(read.message());
  part.unreadable = !read.ok();
  return {std::move(part)};
}

std::vector<protocol::CheckpointPart> SimDisk::WorkerParts(uint64_t step) const {
  std::vector<protocol::CheckpointPart> workers;
  const auto manifest = manifests_.find(step);
  if (manifest == manifests_.end()) return workers;
  std::map<std::string, protocol::CheckpointPart> parts;
  for (const protocol::CheckpointPart& part : manifest->second.parts) parts[part.name] = part;
  for (uint32_t rank = 0; rank < manifest->second.world_size; ++rank) {
    const auto part = parts.find(protocol::WorkerPartName(rank, manifest->second.term));
    if (part != parts.end()) workers.push_back(part->second);
  }
  return workers;
}

absl::Status SimDisk::WriteManifest(const SimProcess& writer,
                                    const protocol::CheckpointManifest& manifest,
                                    bool checks_parts) {
  if (Refuses(writer)) return absl::ResourceExhaustedError("no space is left");
  // An earlier coordinator may have abandoned the checkpoint and removed its files.
  const bool all_there = std::all_of(manifest.parts.begin(), manifest.parts.end(),
                                     [&](const auto& part) { return FindPart(part) != nullptr; });
  if (checks_parts && !all_there) return absl::DataLossError("a part is gone");
  manifests_[manifest.step] = manifest;
  dropped_damaged_ = false;
  not_usable_.erase(manifest.step);
  refused_.erase(manifest.step);
  spoilt_.erase(manifest.step);
  if (fails_late()) {
    // Only the next coordinator finds the checkpoint.
    not_usable_.insert(manifest.step);
    return absl::UnavailableError("the folder cannot be made durable");
  }
  ++completed_;
  ++world_.report.checkpoints;
  return absl::OkStatus();
}

void SimDisk::Drop(uint64_t step) {
  manifests_.erase(step);
  parts_.erase(step);
  const size_t files =
      std::erase_if(damaged_, [step](const auto& part) { return part.first == step; });
  // A part that was lost and written again does not make an unusable checkpoint usable.
  dropped_damaged_ = dropped_damaged_ || files > 0 || spoilt_.contains(step);
}

uint32_t SimDisk::TermOf(uint64_t step) const {
  const auto manifest = manifests_.find(step);
  return manifest == manifests_.end() ? 0 : manifest->second.term;
}

bool SimDisk::IsWhole(const protocol::CheckpointManifest& manifest, const Servers& servers) const {
  return std::none_of(manifest.parts.begin(), manifest.parts.end(), [&](const auto& part) {
    return (!servers || servers(part.server)) && damaged_.contains({manifest.step, FileOf(part)});
  });
}

std::vector<protocol::CheckpointManifest> SimDisk::UsableCheckpoints(const Servers& servers) {
  std::vector<protocol::CheckpointManifest> usable;
  not_usable_.clear();
  for (const auto& [step, manifest] : manifests_) {
    if (IsWhole(manifest, servers)) {
      usable.push_back(manifest);
    } else {
      not_usable_.insert(step);
    }
  }
  return usable;
}

uint64_t SimDisk::NewestToRestore() const {
  uint64_t newest = 0;
  for (const auto& [step, manifest] : manifests_) {
    if (CanBeRestored(step)) newest = step;
  }
  return newest;
}

std::vector<std::string> SimDisk::ProblemsOf(const protocol::CheckpointManifest& manifest,
                                             size_t least_parts) const {
  std::vector<std::string> problems;
  if (manifest.parts.size() < least_parts) {
    problems.push_back(absl::StrCat("the checkpoint of step ", manifest.step, " has ",
                                    manifest.parts.size(), " parts"));
  }
  for (const protocol::CheckpointPart& part : manifest.parts) {
    const std::string* const bytes = FindPart(part);
    if (part.term == manifest.term && bytes != nullptr && bytes->size() == part.bytes) continue;
    problems.push_back(absl::StrCat("the checkpoint of step ", manifest.step, " lists ", part.name,
                                    " of term ", part.term, ", which is not there"));
  }
  return problems;
}

bool SimDisk::DamageNewest() {
  if (manifests_.empty()) return false;
  const auto& [step, manifest] = *manifests_.rbegin();
  const protocol::CheckpointPart& part =
      manifest.parts[world_.chance.Choose("part", manifest.parts.size())];
  std::string& bytes = parts_[step][FileOf(part)];
  if (bytes.empty()) return false;
  bytes[world_.chance.Choose("byte", bytes.size())] ^= 1;
  damaged_.insert({step, FileOf(part)});
  spoilt_.insert(step);
  return true;
}

bool StrikeDisk(Fault fault, SimWorld* world, SimDisk* disk) {
  const auto until = [world](uint64_t longest) {
    return world->now + static_cast<Micros>(world->chance.Choose("for", longest));
  };
  switch (fault) {
    case Fault::kDamage:
      return disk->DamageNewest();
    case Fault::kDiskFull:
      world->disk_full_until = until(100'000);
      return true;
    case Fault::kDiskSlow:
      world->disk_slow_until = until(300'000);
      return true;
    case Fault::kUnreadable:
      world->disk_unreadable_until = until(100'000);
      return true;
    case Fault::kFailsAfterWrite:
      world->disk_fails_late_until = until(100'000);
      return true;
    case Fault::kWriteOutlives:
      world->writes_outlive_until = until(300'000);
      return true;
    default:
      return true;  // Faults of single messages.
  }
}

}  // namespace sluice
