#include "tests/sim/sim_disk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace sluice {
namespace {

absl::Span<const std::byte> BytesOnDisk(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

protocol::CheckpointPart SimDisk::WritePart(uint32_t term, uint64_t step, const std::string& name,
                                            std::string bytes) {
  protocol::CheckpointPart part;
  part.term = term;
  part.step = step;
  part.name = name;
  if (full()) {
    if (manifests_.contains(step)) ++world_.report.late_failed_writes;
    part.error = "no space is left";
    return part;
  }
  part.bytes = bytes.size();
  part.checksum = Crc32c(BytesOnDisk(bytes));
  damaged_.erase({step, name});
  parts_[step][name] = std::move(bytes);
  return part;
}

const std::string* SimDisk::FindPart(uint64_t step, const std::string& name) const {
  const auto of_step = parts_.find(step);
  if (of_step == parts_.end()) return nullptr;
  const auto part = of_step->second.find(name);
  return part == of_step->second.end() ? nullptr : &part->second;
}

absl::StatusOr<std::string> SimDisk::ReadPart(uint64_t step, const std::string& name) {
  const auto manifest = manifests_.find(step);
  if (manifest == manifests_.end()) {
    return absl::DataLossError(absl::StrCat("there is no checkpoint after step ", step));
  }
  for (const protocol::CheckpointPart& part : manifest->second.parts) {
    if (part.name != name) continue;
    const std::string& bytes = parts_[step][name];
    if (bytes.size() == part.bytes && Crc32c(BytesOnDisk(bytes)) == part.checksum) return bytes;
    ++world_.report.damaged_refused;
    return absl::DataLossError(absl::StrCat(name, " is damaged"));
  }
  return absl::DataLossError(absl::StrCat(name, " is not in the manifest"));
}

absl::Status SimDisk::WriteManifest(const protocol::CheckpointManifest& manifest,
                                    bool checks_parts) {
  if (full()) return absl::ResourceExhaustedError("no space is left");
  // An earlier coordinator may have abandoned the checkpoint and removed its files.
  const bool all_there =
      std::all_of(manifest.parts.begin(), manifest.parts.end(),
                  [&](const auto& part) { return FindPart(manifest.step, part.name) != nullptr; });
  if (checks_parts && !all_there) return absl::DataLossError("a part is gone");
  manifests_[manifest.step] = manifest;
  dropped_damaged_ = false;
  not_usable_.erase(manifest.step);
  refused_.erase(manifest.step);
  ++world_.report.checkpoints;
  return absl::OkStatus();
}

void SimDisk::Drop(uint64_t step) {
  manifests_.erase(step);
  parts_.erase(step);
  const size_t files =
      std::erase_if(damaged_, [step](const auto& part) { return part.first == step; });
  dropped_damaged_ = dropped_damaged_ || files > 0;
}

uint32_t SimDisk::TermOf(uint64_t step) const {
  const auto manifest = manifests_.find(step);
  return manifest == manifests_.end() ? 0 : manifest->second.term;
}

bool SimDisk::IsWhole(const protocol::CheckpointManifest& manifest) const {
  return std::none_of(manifest.parts.begin(), manifest.parts.end(), [&](const auto& part) {
    return damaged_.contains({manifest.step, part.name});
  });
}

std::vector<protocol::CheckpointManifest> SimDisk::UsableCheckpoints() {
  std::vector<protocol::CheckpointManifest> usable;
  not_usable_.clear();
  for (const auto& [step, manifest] : manifests_) {
    if (IsWhole(manifest)) {
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

bool SimDisk::DamageNewest() {
  if (manifests_.empty()) return false;
  const auto& [step, manifest] = *manifests_.rbegin();
  const protocol::CheckpointPart& part =
      manifest.parts[world_.chance.Choose("part", manifest.parts.size())];
  std::string& bytes = parts_[step][part.name];
  if (bytes.empty()) return false;
  bytes[world_.chance.Choose("byte", bytes.size())] ^= 1;
  damaged_.insert({step, part.name});
  return true;
}

}  // namespace sluice
