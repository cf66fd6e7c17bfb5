// What sections of a snapshot consist of, as bytes and back (docs/checkpoints.md). Reading says
// what is wrong within a section whose checksum is right; the caller adds which section.
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

// Codecs are written once each, as their text: their numbers are promised nowhere.
struct SpecTexts {
  std::vector<std::string> texts;  // As they are first used.
  std::vector<uint32_t> of_chunk;
};

SpecTexts CollectSpecs(const compress::SavedCompressor& saved);

// Of what the functions below append.
size_t SizeOf(const std::vector<compress::SavedState>& states);
size_t SizeOf(const compress::SavedCompressor& saved, const SpecTexts& specs);
size_t SizeOf(const std::vector<CompressionPlan>& plans);

bool HaveMomentum(const std::vector<CompressionPlan>& plans);

void AppendStates(const std::vector<compress::SavedState>& states, std::string* out);
void AppendCompressor(const compress::SavedCompressor& saved, const SpecTexts& specs,
                      std::string* out);
void AppendPlans(const std::vector<CompressionPlan>& plans, std::string* out);
// A float for each.
void AppendMomenta(const std::vector<CompressionPlan>& plans, std::string* out);

// DATA_LOSS; FAILED_PRECONDITION: a codec that this program does not know. Each takes no more than
// the reader has.
absl::Status ReadStates(ByteReader* reader, std::vector<compress::SavedState>* states);
absl::Status ReadCompressor(ByteReader* reader, compress::SavedCompressor* saved);
absl::Status ReadPlans(ByteReader* reader, std::vector<CompressionPlan>* plans);
// Of plans that were read.
absl::Status ReadMomenta(ByteReader* reader, std::vector<CompressionPlan>* plans);

}  // namespace sluice::protocol
