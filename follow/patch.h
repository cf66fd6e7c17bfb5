// SPDX-License-Identifier: Apache-2.0
// Patch: the difference between two versions of a model's weights as bytes, or an anchor: one
// version's complete weights and tensor table. Patches are lossless for every bit pattern, and
// equal inputs give equal bytes. docs/patch-format.md is normative. Weights are bytes in
// little-endian order: all tensors one after another, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compress/element_type.h"
#include "follow/chunk_coding.h"
#include "follow/sha256.h"
#include "follow/tensor_layout.h"

namespace sluice::follow {

inline constexpr size_t kPatchHeaderSize = 152;
inline constexpr size_t kPartHeaderSize = 8;

struct PatchHeader {
  compress::ElementType type = compress::ElementType::kBfloat16;
  bool anchor = false;
  uint64_t elements = 0;
  uint64_t base_version = 0;  // 0 for an anchor.
  uint64_t version = 0;
  Digest layout{};
  Digest base{};    // WeightsDigest of the base; zeros for an anchor.
  Digest result{};  // WeightsDigest of the result.
};

// Returns true if `bytes` begin like a patch of any format version.
bool LooksLikePatch(absl::Span<const std::byte> bytes);

// Two versions of a model. `base_version` must be below `version`.
struct PatchVersions {
  uint64_t base_version = 0;
  uint64_t version = 0;
  // WeightsDigests of both versions' weights, if the caller knows them. Computing them takes most
  // of the time.
  std::optional<Digest> base{};
  std::optional<Digest> result{};
};

// Returns the patch from `before` to `after`, which must have the same size. Fails with
// INVALID_ARGUMENT if the sizes, the versions or the layout do not fit.
absl::StatusOr<std::vector<std::byte>> EncodePatch(const PatchVersions& versions,
                                                   const TensorLayout& layout,
                                                   compress::ElementType type,
                                                   absl::Span<const std::byte> before,
                                                   absl::Span<const std::byte> after);

// Returns an anchor. `digest` is the WeightsDigest of the weights, if the caller knows it. Fails
// like EncodePatch.
absl::StatusOr<std::vector<std::byte>> EncodeAnchor(uint64_t version, const TensorLayout& layout,
                                                    compress::ElementType type,
                                                    absl::Span<const std::byte> weights,
                                                    const std::optional<Digest>& digest = {});

// A patch whose bytes are valid. It refers to the bytes that Parse was given.
class Patch {
 public:
  // The coded form of one chunk.
  struct Part {
    ChunkMethod method = ChunkMethod::kSame;
    absl::Span<const std::byte> payload;
  };

  // Accepts any bytes and checks all of them: checksums, limits and the structure of each part. So
  // no patch fails while it is being applied. Fails with DATA_LOSS if a checksum is wrong, and
  // otherwise with INVALID_ARGUMENT. The message names the part, the value and the remedy.
  static absl::StatusOr<Patch> Parse(absl::Span<const std::byte> bytes);

  const PatchHeader& header() const { return header_; }
  // The tensors of an anchor. Empty for other patches.
  const TensorLayout& layout() const { return layout_; }
  const std::vector<Part>& parts() const { return parts_; }
  // Number of elements that the patch replaces.
  uint64_t changed() const { return changed_; }

  // Takes `weights` from the base to the result, in place. `current` is the WeightsDigest of
  // `weights`. Fails with FAILED_PRECONDITION and changes nothing if the weights are not the
  // patch's base. Fails with DATA_LOSS if the result has another digest than announced: then the
  // weights are useless, and the caller must continue with an anchor.
  absl::Status Apply(const Digest& current, absl::Span<std::byte> weights) const;

 private:
  PatchHeader header_;
  TensorLayout layout_;
  std::vector<Part> parts_;
  uint64_t changed_ = 0;
};

}  // namespace sluice::follow
