// SPDX-License-Identifier: Apache-2.0
#include "cli/follow_output.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "follow/patch.h"
#include "follow/safetensors.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::cli {
namespace {

constexpr absl::string_view kAnchorSuffix = "-anchor.sluicepatch";
constexpr absl::string_view kPatchSuffix = "-patch.sluicepatch";
constexpr size_t kAnchorsKept = 2;

absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

absl::Status WriteModel(const std::string& path, const ModelVersion& model) {
  absl::StatusOr<protocol::DurableFile> file = protocol::DurableFile::Create(path);
  if (!file.ok()) return file.status();
  const std::string header =
      follow::FormatSafetensorsHeader(*model.layout, model.type,
                                      {{"sluice.version", absl::StrCat(model.version.step)},
                                       {"sluice.term", absl::StrCat(model.version.term)}});
  for (const absl::string_view part : {absl::string_view(header), AsText(model.weights)}) {
    if (absl::Status written = file->Append(part); !written.ok()) return written;
  }
  return file->Finish().status();
}

absl::Status PatchFolder::Open() { return protocol::MakeFolder(path_); }

absl::Status PatchFolder::Add(const ModelVersion& model) {
  const follow::WeightsState state{.version = model.version,
                                   .digest = follow::WeightsDigest(model.type, model.weights)};
  const bool continues = last_.has_value() && patches_ < anchor_every_ &&
                         last_->version.term == model.version.term &&
                         last_->version.step < model.version.step && layout_ == *model.layout;
  bool anchor = !continues;
  absl::StatusOr<std::vector<std::byte>> bytes;
  if (continues) {
    bytes = follow::EncodePatch({.base_version = last_->version.step,
                                 .version = model.version.step,
                                 .base = last_->digest,
                                 .result = state.digest},
                                *model.layout, model.type, weights_, model.weights);
    anchor = bytes.ok() && bytes->size() >= model.weights.size();
  }
  if (anchor) {
    bytes = follow::EncodeAnchor(model.version.step, *model.layout, model.type, model.weights,
                                 state.digest);
  }
  if (!bytes.ok()) return bytes.status();
  if (absl::Status written = Write(model, anchor, *bytes); !written.ok()) return written;
  patches_ = anchor ? 0 : patches_ + 1;
  last_ = state;
  layout_ = *model.layout;
  weights_.assign(model.weights.begin(), model.weights.end());
  return anchor ? RemoveOld() : absl::OkStatus();
}

absl::Status PatchFolder::Write(const ModelVersion& model, bool anchor,
                                absl::Span<const std::byte> bytes) {
  newest_ = absl::StrFormat("%06d-%012d%s", model.version.term, model.version.step,
                            anchor ? kAnchorSuffix : kPatchSuffix);
  return protocol::WriteDurably(absl::StrCat(path_, "/", newest_), AsText(bytes)).status();
}

absl::Status PatchFolder::RemoveOld() {
  absl::StatusOr<std::vector<std::string>> names = protocol::ListFolder(path_);
  if (!names.ok()) return names.status();
  std::erase_if(*names, [](const std::string& name) {
    return !absl::EndsWith(name, kAnchorSuffix) && !absl::EndsWith(name, kPatchSuffix);
  });
  std::sort(names->rbegin(), names->rend());  // Newest first.
  size_t anchors = 0;
  for (const std::string& name : *names) {
    if (anchors >= kAnchorsKept) {
      const absl::Status removed = protocol::RemoveDurably(absl::StrCat(path_, "/", name));
      if (!removed.ok()) return removed;
    }
    if (absl::EndsWith(name, kAnchorSuffix)) ++anchors;
  }
  return absl::OkStatus();
}

}  // namespace sluice::cli
