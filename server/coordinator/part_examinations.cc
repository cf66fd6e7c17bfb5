// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/part_examinations.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

std::string Name(const protocol::CheckpointPart& part) {
  return absl::StrCat(part.name, " of the checkpoint after step ", part.step);
}

}  // namespace

std::string PartExaminations::Gap(uint64_t step) const {
  const protocol::CheckpointManifest* const manifest = run_.checkpoints().ManifestOf(step);
  if (manifest == nullptr) return "";
  std::set<std::string> names;
  for (const protocol::CheckpointPart& part : manifest->parts) {
    names.insert(part.name);
  }
  uint32_t states = 0;
  for (uint32_t rank = 0; rank < manifest->world_size; ++rank) {
    if (names.contains(protocol::WorkerPartName(rank, manifest->term))) ++states;
  }
  // In an elastic job, ranks may have been absent.
  if (states == manifest->world_size || (states > 0 && run_.options().elastic.has_value()))
    return "";
  return absl::StrCat("its manifest lists ", states, " states of ", manifest->world_size, " ranks");
}

absl::Status PartExaminations::Reported(const protocol::CheckpointPart& part,
                                        absl::string_view from, absl::Time now, Effects* out) {
  const std::optional<protocol::CheckpointPart> listed = Find(part);
  if (!listed.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(from, " reported ", part.name,
                                                   " as unreadable, but the checkpoint after step ",
                                                   part.step, " has no such part"));
  }
  ForgetOthers(*listed);
  const auto verdict = intact_.find(part.name);
  if (verdict != intact_.end() && now - verdict->second < kVerdictHolds) {
    return absl::FailedPreconditionError(absl::StrCat(
        Name(part), " is intact: shard ", ExaminerOf(*listed),
        " has read it. The checkpoint stays. Check how this worker reaches checkpoint.dir or that "
        "shard, and restart it"));
  }
  if (!under_way_.has_value()) {
    under_way_ = {.part = *listed, .from = std::string(from), .trouble = part.error};
    out->push_back(Notice{
        .text = absl::StrCat(from, " reports that ", Name(part), " is unreadable (", part.error,
                             "); shard ", ExaminerOf(*listed), " examines it"),
        .warning = true,
        .fields = {.event = "part_reported", .shard = ExaminerOf(*listed), .step = part.step}});
  }
  Command(out);
  return absl::UnavailableError(absl::StrCat(Name(under_way_->part), " is being examined by shard ",
                                             ExaminerOf(under_way_->part), "; report again"));
}

std::string PartExaminations::Examined(ControlStreamId stream, const protocol::CheckpointPart& part,
                                       absl::Time now, Effects* out) {
  const std::optional<uint32_t> shard = run_.fleet().Find(stream);
  const bool answers = shard.has_value() && under_way_.has_value() &&
                       *shard == ExaminerOf(under_way_->part) && part.step == step_ &&
                       part.name == under_way_->part.name;
  if (!answers) return "";
  const Examination ended = *std::exchange(under_way_, std::nullopt);
  if (part.unreadable || !part.error.empty()) {
    return absl::StrCat(ended.from, " reported ", part.name, ", and shard ", *shard,
                        " found: ", part.error);
  }
  intact_[part.name] = now;
  out->push_back(
      Notice{.text = absl::StrCat(
                 "shard ", *shard, " has read ", Name(part),
                 " and found it intact; the checkpoint stays. Check how ", ended.from,
                 " reaches checkpoint.dir or that shard, because it reports: ", ended.trouble),
             .warning = true,
             .fields = {.event = "part_intact", .shard = *shard, .step = part.step}});
  return "";
}

std::optional<protocol::CheckpointPart> PartExaminations::Find(
    const protocol::CheckpointPart& reported) const {
  const protocol::CheckpointManifest* const manifest = run_.checkpoints().ManifestOf(reported.step);
  if (manifest == nullptr) return std::nullopt;
  if (reported.name == protocol::kManifestName && !manifest->at_shards) {
    protocol::CheckpointPart file;
    file.term = manifest->term;
    file.step = manifest->step;
    file.name = reported.name;
    return file;
  }
  const auto listed = std::find_if(
      manifest->parts.begin(), manifest->parts.end(),
      [&](const protocol::CheckpointPart& part) { return part.name == reported.name; });
  if (listed == manifest->parts.end()) return std::nullopt;
  return *listed;
}

void PartExaminations::ForgetOthers(const protocol::CheckpointPart& part) {
  if (term_ == part.term && step_ == part.step) return;
  term_ = part.term;
  step_ = part.step;
  under_way_.reset();
  intact_.clear();
}

// A command is lost with its stream.
void PartExaminations::Command(Effects* out) {
  const uint32_t shard = ExaminerOf(under_way_->part);
  const ControlStreamId stream = run_.fleet()[shard].stream;
  if (stream == under_way_->stream) return;
  if (run_.fleet().ExaminePart(shard, under_way_->part, out)) under_way_->stream = stream;
}

// With store `path`, shard 0 sees the folder as the coordinator does, because they share a process.
uint32_t PartExaminations::ExaminerOf(const protocol::CheckpointPart& part) const {
  return run_.options().checkpoint.at_shards() ? protocol::ServerOf(part, run_.fleet().size()) : 0;
}

}  // namespace sluice::server
