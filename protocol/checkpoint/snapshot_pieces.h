// SPDX-License-Identifier: Apache-2.0
// Converts the contents of a snapshot's sections to and from bytes (docs/checkpoints.md). The
// caller of a read function has verified the section's checksum, and adds the section's name to
// errors.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "compress/codec_spec.h"
#include "protocol/snapshot.h"

namespace sluice::protocol {

template <typename T>
void Append(T value, std::string* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

// The codecs of a snapshot as text. Each codec is written only once. Codec numbers would not be
// stable across versions.
struct SpecTexts {
  std::vector<std::string> texts;  // In order of first use.
  std::vector<uint32_t> of_chunk;
};

SpecTexts CollectSpecs(const compress::SavedCompressor& saved);

// These return the number of bytes that the functions below append.
size_t SizeOf(const std::vector<compress::SavedState>& states);
size_t SizeOf(const compress::SavedCompressor& saved, const SpecTexts& specs);
size_t SizeOf(const std::vector<CompressionPlan>& plans);

bool HaveMomentum(const std::vector<CompressionPlan>& plans);

void AppendStates(const std::vector<compress::SavedState>& states, std::string* out);
void AppendCompressor(const compress::SavedCompressor& saved, const SpecTexts& specs,
                      std::string* out);
void AppendPlans(const std::vector<CompressionPlan>& plans, std::string* out);
// Appends one float per plan.
void AppendMomenta(const std::vector<CompressionPlan>& plans, std::string* out);

// Each of these reads one kind of content and consumes only its bytes. They fail with DATA_LOSS if
// the content is malformed and with FAILED_PRECONDITION if this program does not know a codec.
absl::Status ReadStates(ByteReader* reader, std::vector<compress::SavedState>* states);
absl::Status ReadCompressor(ByteReader* reader, compress::SavedCompressor* saved);
absl::Status ReadPlans(ByteReader* reader, std::vector<CompressionPlan>* plans);
// Reads the momenta into `plans`, which ReadPlans has filled.
absl::Status ReadMomenta(ByteReader* reader, std::vector<CompressionPlan>* plans);

}  // namespace sluice::protocol
