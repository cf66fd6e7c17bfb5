// SPDX-License-Identifier: Apache-2.0
#include "follow/model_assembly.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::follow {
namespace {

uint64_t ProductOf(const std::vector<uint64_t>& shape) {
  uint64_t product = 1;
  for (const uint64_t size : shape) product *= size;
  return product;
}

}  // namespace

TensorLayout LayoutOfShard(const ModelParts& parts, size_t shard) {
  TensorLayout layout;
  for (const TensorPiece& piece : parts.shards[shard]) {
    layout.push_back({.name = absl::StrCat(parts.model[piece.tensor].name, "@", piece.offset),
                      .shape = {piece.count}});
  }
  return layout;
}

ModelAssembly::ModelAssembly(compress::ElementType type, ModelParts parts)
    : type_(type), parts_(std::move(parts)), shards_(parts_.shards.size()) {
  uint64_t elements = 0;
  for (const NamedShape& tensor : parts_.model) {
    tensor_at_.push_back(elements);
    elements += ProductOf(tensor.shape);
  }
  weights_.resize(elements * BytesOf(type_));
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].layout = LayoutDigest(LayoutOfShard(parts_, i));
    uint64_t own = 0;
    for (const TensorPiece& piece : parts_.shards[i]) own += piece.count;
    shards_[i].weights.resize(own * BytesOf(type_));
  }
}

bool ModelAssembly::IsFull(size_t shard) const {
  const Shard& one = shards_[shard];
  return one.waiting.size() >= kWaitingMax || one.waiting_bytes > one.weights.size();
}

absl::Status ModelAssembly::CheckUpdate(size_t shard, uint32_t term,
                                        const PatchHeader& header) const {
  const Shard& one = shards_[shard];
  if (header.type != type_ || header.layout != one.layout) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, " sent an update of another model or another type"));
  }
  if (header.anchor) return absl::OkStatus();
  const WeightsState base{.version = {.term = term, .step = header.base_version},
                          .digest = header.base};
  if (one.newest == base) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shard ", shard, " sent a patch from version ", ToString(base.version),
                   " to version ", header.version, ", but ",
                   one.newest.has_value() ? absl::StrCat("version ", ToString(one.newest->version))
                                          : "no version",
                   " is known here; this follower needs an anchor"));
}

absl::Status ModelAssembly::Take(size_t shard, uint32_t term, std::vector<std::byte> bytes) {
  absl::StatusOr<Patch> patch = Patch::Parse(bytes);
  if (!patch.ok()) {
    return absl::Status(patch.status().code(),
                        absl::StrCat("shard ", shard, ": ", patch.status().message()));
  }
  const PatchHeader& header = patch->header();
  if (absl::Status fits = CheckUpdate(shard, term, header); !fits.ok()) return fits;
  Shard& one = shards_[shard];
  one.newest = {.version = {.term = term, .step = header.version}, .digest = header.result};
  one.waiting_bytes += bytes.size();
  // Moving a vector keeps the address of its elements, to which the patch refers.
  one.waiting.push_back(
      {.version = one.newest->version, .bytes = std::move(bytes), .patch = *std::move(patch)});
  return absl::OkStatus();
}

std::optional<WeightsVersion> ModelAssembly::NextOf(const Shard& shard) {
  if (!shard.waiting.empty()) return shard.waiting.front().version;
  if (shard.current.has_value()) return shard.current->version;
  return std::nullopt;
}

absl::StatusOr<std::optional<WeightsVersion>> ModelAssembly::Advance() {
  for (;;) {
    // The lowest version that can be complete: each shard's own next version is at most this one.
    std::optional<WeightsVersion> target;
    for (const Shard& shard : shards_) {
      if (!shard.weights.empty()) target = std::max(target, NextOf(shard));
    }
    if (!target.has_value()) return std::nullopt;
    bool is_missing = false;
    bool skipped = false;
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (!HasWeights(i)) continue;
      const std::optional<WeightsVersion> next = NextOf(shards_[i]);
      if (next == target) continue;
      if (shards_[i].waiting.empty()) {
        is_missing = true;
        continue;
      }
      if (absl::Status applied = ApplyNext(i); !applied.ok()) return applied;
      skipped = true;
    }
    if (skipped) continue;
    if (is_missing || target == completed_) return std::nullopt;
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (shards_[i].waiting.empty() || !HasWeights(i)) continue;
      if (absl::Status applied = ApplyNext(i); !applied.ok()) return applied;
    }
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (shards_[i].moved) Scatter(i);
    }
    completed_ = target;
    applied_ = std::exchange(applied_since_, {});
    return target;
  }
}

absl::Status ModelAssembly::ApplyNext(size_t index) {
  Shard& shard = shards_[index];
  const Waiting waiting = std::move(shard.waiting.front());
  shard.waiting.pop_front();
  shard.waiting_bytes -= waiting.bytes.size();
  const Digest before = shard.current.has_value() ? shard.current->digest : Digest{};
  const absl::Status applied = waiting.patch.Apply(before, absl::MakeSpan(shard.weights));
  if (!applied.ok()) {
    shard.current.reset();
    StartOver(index);
    return absl::DataLossError(absl::StrCat("shard ", index, ": ", applied.message()));
  }
  applied_since_.changed += waiting.patch.changed();
  applied_since_.bytes += waiting.bytes.size();
  if (waiting.patch.header().anchor) ++applied_since_.anchors;
  shard.moved = true;
  shard.current = {.version = waiting.version, .digest = waiting.patch.header().result};
  return absl::OkStatus();
}

void ModelAssembly::StartOver(size_t index) {
  Shard& shard = shards_[index];
  shard.newest.reset();
  shard.waiting.clear();
  shard.waiting_bytes = 0;
}

void ModelAssembly::Scatter(size_t index) {
  const size_t width = BytesOf(type_);
  const std::byte* from = shards_[index].weights.data();
  for (const TensorPiece& piece : parts_.shards[index]) {
    const bool row_major =
        parts_.storage_order.empty() || parts_.storage_order[piece.tensor].empty();
    if (row_major) {
      std::byte* const to = weights_.data() + (tensor_at_[piece.tensor] + piece.offset) * width;
      std::memcpy(to, from, piece.count * width);
    } else {
      ScatterInOrder(piece, from);
    }
    from += piece.count * width;
  }
  shards_[index].moved = false;
}

void ModelAssembly::ScatterInOrder(const TensorPiece& piece, const std::byte* from) {
  const size_t width = BytesOf(type_);
  const std::vector<uint64_t>& shape = parts_.model[piece.tensor].shape;
  const std::vector<size_t>& order = parts_.storage_order[piece.tensor];
  std::vector<uint64_t> strides(shape.size(), 1);  // The strides of the row-major copy.
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  std::byte* const tensor = weights_.data() + tensor_at_[piece.tensor] * width;
  for (uint64_t i = 0; i < piece.count; ++i) {
    uint64_t rest = piece.offset + i;
    uint64_t to = 0;
    for (size_t d = order.size(); d-- > 0;) {
      to += rest % shape[order[d]] * strides[order[d]];
      rest /= shape[order[d]];
    }
    std::memcpy(tensor + to * width, from + i * width, width);
  }
}

}  // namespace sluice::follow
