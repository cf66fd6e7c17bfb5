// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/weights_channel.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "follow/patch.h"

namespace sluice::follow {
namespace {

uint64_t BytesOfWeights(compress::ElementType type, const TensorLayout& layout) {
  const absl::StatusOr<uint64_t> elements = CheckLayout(layout);
  Check(elements.ok(), "the layout is valid");
  return *elements * BytesOf(type);
}

}  // namespace

WeightsChannel::WeightsChannel(compress::ElementType type, TensorLayout layout)
    : type_(type),
      layout_(std::move(layout)),
      weights_bytes_(BytesOfWeights(type_, layout_)),
      layout_digest_(LayoutDigest(layout_)),
      log_(weights_bytes_) {}

absl::Status WeightsChannel::Publish(const WeightsVersion& version,
                                     std::vector<std::byte> weights) {
  const bool continues = current_.has_value() && current_->version.term == version.term &&
                         current_->version.step < version.step;
  if (!continues) {
    current_ = {.version = version, .digest = WeightsDigest(type_, weights)};
    weights_ = std::move(weights);
    MutexLock lock(&mutex_);
    log_.Begin(*current_);
    return absl::OkStatus();
  }
  const WeightsState base = *current_;
  const WeightsState next{.version = version, .digest = WeightsDigest(type_, weights)};
  absl::StatusOr<std::vector<std::byte>> bytes = EncodePatch({.base_version = base.version.step,
                                                              .version = version.step,
                                                              .base = base.digest,
                                                              .result = next.digest},
                                                             layout_, type_, weights_, weights);
  if (!bytes.ok()) return bytes.status();
  current_ = next;
  weights_ = std::move(weights);
  auto patch = std::make_shared<const WeightsUpdate>(WeightsUpdate{
      .anchor = false, .base = base, .result = *current_, .bytes = *std::move(bytes)});
  MutexLock lock(&mutex_);
  log_.Add(std::move(patch));
  return absl::OkStatus();
}

absl::Status WeightsChannel::Repeat(uint32_t term, std::vector<std::byte> update) {
  const absl::Status repeated = TryToRepeat(term, std::move(update));
  MutexLock lock(&mutex_);
  broken_ = !repeated.ok();
  return repeated;
}

absl::Status WeightsChannel::TryToRepeat(uint32_t term, std::vector<std::byte> update) {
  const absl::StatusOr<Patch> patch = Patch::Parse(update);
  if (!patch.ok()) return patch.status();
  const PatchHeader& header = patch->header();
  if (header.type != type_ || header.layout != layout_digest_) {
    return absl::InvalidArgumentError("the update is of another model or another type");
  }
  const WeightsState base{.version = {.term = term, .step = header.base_version},
                          .digest = header.base};
  if (!header.anchor && current_ != base) {
    return absl::InvalidArgumentError(
        absl::StrCat("the patch from version ", ToString(base.version),
                     " does not continue the last one; an anchor is needed"));
  }
  weights_.resize(weights_bytes_);
  if (absl::Status applied = patch->Apply(header.base, absl::MakeSpan(weights_)); !applied.ok()) {
    current_.reset();
    return applied;
  }
  current_ = {.version = {.term = term, .step = header.version}, .digest = header.result};
  MutexLock lock(&mutex_);
  if (header.anchor) {
    log_.Begin(*current_);
  } else {
    log_.Add(std::make_shared<const WeightsUpdate>(WeightsUpdate{
        .anchor = false, .base = base, .result = *current_, .bytes = std::move(update)}));
  }
  return absl::OkStatus();
}

absl::Status WeightsChannel::MakeWantedAnchor() {
  {
    MutexLock lock(&mutex_);
    if (!std::exchange(wants_anchor_, false) || !current_.has_value()) return absl::OkStatus();
    // An anchor that was made meanwhile serves the follower too.
    const UpdateLog::Choice choice = log_.NextFor(std::nullopt);
    if (choice.next != UpdateLog::Next::kAnchor) return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::byte>> bytes =
      EncodeAnchor(current_->version.step, layout_, type_, weights_, current_->digest);
  if (!bytes.ok()) return bytes.status();
  const auto anchor = std::make_shared<const WeightsUpdate>(
      WeightsUpdate{.anchor = true, .base = {}, .result = *current_, .bytes = *std::move(bytes)});
  MutexLock lock(&mutex_);
  ++anchors_made_;
  log_.SetAnchor(anchor);
  new_anchor_ = anchor;
  return absl::OkStatus();
}

void WeightsChannel::ReleaseAnchor() {
  MutexLock lock(&mutex_);
  new_anchor_.reset();
}

UpdateLog::Choice WeightsChannel::NextFor(const std::optional<WeightsState>& have) {
  MutexLock lock(&mutex_);
  UpdateLog::Choice choice = log_.NextFor(have);
  if (choice.next == UpdateLog::Next::kAnchor) wants_anchor_ = true;
  return choice;
}

std::optional<WeightsState> WeightsChannel::newest() const {
  MutexLock lock(&mutex_);
  return log_.newest();
}

std::optional<uint64_t> WeightsChannel::Behind(const std::optional<WeightsState>& have) const {
  MutexLock lock(&mutex_);
  return have.has_value() ? log_.Behind(*have) : std::nullopt;
}

bool WeightsChannel::is_broken() const {
  MutexLock lock(&mutex_);
  return broken_;
}

std::optional<WeightsState> WeightsChannel::StateToContinue() const {
  MutexLock lock(&mutex_);
  return broken_ ? std::nullopt : log_.newest();
}

bool WeightsChannel::wants_anchor() const {
  MutexLock lock(&mutex_);
  return wants_anchor_;
}

uint64_t WeightsChannel::anchors_made() const {
  MutexLock lock(&mutex_);
  return anchors_made_;
}

}  // namespace sluice::follow
