// SPDX-License-Identifier: Apache-2.0
// SHA-256, and the digest of a model's weights.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "compress/element_type.h"

struct evp_md_ctx_st;

namespace sluice::follow {

using Digest = std::array<std::byte, 32>;

// Hashes bytes piece by piece.
class Sha256 {
 public:
  Sha256();
  void Add(absl::Span<const std::byte> bytes);
  // Returns the digest of all added bytes. Call it once, as the last call.
  Digest Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

Digest Sha256Of(absl::Span<const std::byte> bytes);

// Returns the digest of weights: the SHA-256 of the SHA-256 of each chunk (chunk_coding.h), in
// order, so that threads can hash chunks independently.
Digest WeightsDigest(compress::ElementType type, absl::Span<const std::byte> weights);

// Returns 64 lower-case hexadecimal digits.
std::string ToHex(const Digest& digest);

}  // namespace sluice::follow
