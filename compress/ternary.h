// Codec `ternary`: per block of 256, the signs of all values that reach a share of the block's
// largest magnitude, and one scale, their mean magnitude. Its density follows the data; positions
// are Rice-coded over the whole frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"
#include "compress/position_coding.h"

namespace sluice {

std::unique_ptr<Codec> MakeTernary(const CodecSpec& spec);
// Appends the payload of what was selected elsewhere, on a GPU: the gaps and, a bit each, the signs
// of what is kept. `scales` are the codes of all blocks, 0 of those that keep nothing; they are
// overwritten.
void AppendTernaryPayload(IndexMode index, absl::Span<const uint32_t> gaps,
                          absl::Span<const std::byte> signs, absl::Span<uint32_t> scales,
                          std::vector<std::byte>* out);

absl::Status ValidateTernary(absl::Span<const std::byte> payload, size_t count);
void DecodeAddTernary(absl::Span<const std::byte> payload, absl::Span<float> sum);

}  // namespace sluice
