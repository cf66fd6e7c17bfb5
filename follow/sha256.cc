// SPDX-License-Identifier: Apache-2.0
#include "follow/sha256.h"

#include <openssl/evp.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "follow/chunk_coding.h"

namespace sluice::follow {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  Check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
        "SHA-256 starts");
}

void Sha256::Add(absl::Span<const std::byte> bytes) {
  Check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256 takes bytes");
}

Digest Sha256::Finish() {
  Digest digest;
  unsigned int size = 0;
  Check(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                           &size) == 1 &&
            size == digest.size(),
        "SHA-256 ends");
  return digest;
}

Digest Sha256Of(absl::Span<const std::byte> bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

Digest WeightsDigest(compress::ElementType type, absl::Span<const std::byte> weights) {
  Sha256 hash;
  const size_t chunk_bytes = kChunkElements * BytesOf(type);
  for (size_t at = 0; at < weights.size(); at += chunk_bytes) {
    hash.Add(Sha256Of(weights.subspan(at, chunk_bytes)));
  }
  return hash.Finish();
}

std::string ToHex(const Digest& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace sluice::follow
