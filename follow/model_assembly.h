// SPDX-License-Identifier: Apache-2.0
// ModelAssembly: puts together a model from the updates of a job's shards. Each shard sends its own
// chain of patches, and chains may lack versions. A model is complete when all shards have the same
// version. Updates wait until their version can be completed; an update whose version can not be
// completed any more, because another shard has only later ones, is applied and skipped. Pure; not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compress/element_type.h"
#include "follow/patch.h"
#include "follow/tensor_layout.h"
#include "follow/weights_version.h"

namespace sluice::follow {

// Consecutive elements of one tensor in its storage order.
struct TensorPiece {
  size_t tensor = 0;  // Index in ModelParts::model.
  uint64_t offset = 0;
  uint64_t count = 0;
};

// How a model is divided among shards.
struct ModelParts {
  TensorLayout model;
  // By tensor: the dimensions from the outermost in storage to the innermost. Empty means
  // row-major.
  std::vector<std::vector<size_t>> storage_order;
  std::vector<std::vector<TensorPiece>> shards;  // The order of each shard's weights.
};

// Returns the layout of one shard's weights, as its anchors contain it: a tensor for each piece,
// with the name TENSOR@OFFSET.
TensorLayout LayoutOfShard(const ModelParts& parts, size_t shard);

class ModelAssembly {
 public:
  // Updates that may wait for each shard. Without limit, a shard that is cut off would let the
  // updates of the others pile up.
  static constexpr size_t kWaitingMax = 64;

  // CheckLayout must accept the model, and the pieces of all shards must cover it exactly.
  ModelAssembly(compress::ElementType type, ModelParts parts);

  // Returns what a shard's next update must continue: the result of the newest update. Unset if it
  // must be an anchor.
  const std::optional<WeightsState>& have(size_t shard) const { return shards_[shard].newest; }
  // Returns true if the shard has kWaitingMax updates waiting, or waiting updates with more bytes
  // than its weights.
  bool IsFull(size_t shard) const;
  // Takes the next update of a shard. Checks all of its bytes. Fails as Patch::Parse does, and with
  // INVALID_ARGUMENT if the update does not belong to this model or does not continue `have`. Then
  // nothing changes.
  absl::Status Take(size_t shard, uint32_t term, std::vector<std::byte> bytes);

  // Forgets what the shard's updates led to, so that it continues with an anchor. Its weights stay
  // part of the model until then.
  void StartOver(size_t shard);

  // Completes the next version if the updates for it have arrived, and returns it. Otherwise
  // returns no value. Fails with DATA_LOSS if an update leads to another digest than it announces;
  // that shard then starts over with an anchor.
  absl::StatusOr<std::optional<WeightsVersion>> Advance();
  // The weights of the version that Advance returned last: row-major, in the order of the model's
  // tensors. Valid until the next call of Advance.
  absl::Span<const std::byte> weights() const { return weights_; }

  const TensorLayout& model() const { return parts_.model; }
  compress::ElementType type() const { return type_; }
  size_t shards() const { return shards_.size(); }
  // False for a shard that has no part of the model. It sends no updates.
  bool HasWeights(size_t shard) const { return !shards_[shard].weights.empty(); }
  // The updates that were applied between the last two completed versions.
  struct Applied {
    uint64_t changed = 0;  // An element counts once for each update that replaces it.
    uint64_t bytes = 0;
    uint64_t anchors = 0;
  };
  const Applied& applied() const { return applied_; }

 private:
  struct Waiting {
    WeightsVersion version;
    std::vector<std::byte> bytes;
    Patch patch;  // Refers to `bytes`.
  };
  struct Shard {
    Digest layout{};
    std::vector<std::byte> weights;
    std::optional<WeightsState> current;  // The state of `weights`.
    std::optional<WeightsState> newest;   // The state after the last waiting update.
    std::deque<Waiting> waiting;
    uint64_t waiting_bytes = 0;
    bool moved = false;  // `weights` differs from the shard's part of `weights_`.
  };

  absl::Status CheckUpdate(size_t shard, uint32_t term, const PatchHeader& header) const;
  // Returns the version of the shard's first waiting update, or else its current version.
  static std::optional<WeightsVersion> NextOf(const Shard& shard);
  // Applies the first waiting update of the shard.
  absl::Status ApplyNext(size_t index);
  // Copies a shard's weights into the model.
  void Scatter(size_t index);
  // Copies elements of a tensor that is not stored in row-major order.
  void ScatterInOrder(const TensorPiece& piece, const std::byte* from);

  const compress::ElementType type_;
  const ModelParts parts_;
  std::vector<uint64_t> tensor_at_;  // Index of each tensor's first element in the model.
  std::vector<Shard> shards_;
  std::optional<WeightsVersion> completed_;
  std::vector<std::byte> weights_;
  Applied applied_;
  Applied applied_since_;  // Since the last completed version.
};

}  // namespace sluice::follow
