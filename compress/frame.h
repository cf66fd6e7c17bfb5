// Frame: the self-describing encoding of one chunk, as it travels and as it is stored.
// docs/wire-format.md is normative. 20 bytes of header (magic, version, codec, flags, element
// count, payload size, CRC-32C), then the payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compress/codec.h"

namespace sluice {

inline constexpr size_t kFrameHeaderSize = 20;
// A frame over this is never made: chunks are cut so that it cannot be (job/layout.h).
inline constexpr size_t kMaxFrameSize = 4 << 20;

struct FrameHeader {
  CodecId codec = CodecId::kNone;
  uint32_t count = 0;
  uint32_t payload_size = 0;
  uint32_t checksum = 0;  // CRC-32C over the header before it and the payload.
};

// Upper bound of a frame of `count` elements.
size_t MaxFrameSize(const Codec& codec, size_t count);

// Appends one frame to `*out`. Errors as Codec::Encode; then nothing changed.
absl::Status EncodeFrame(const Codec& codec, const EncodeInput& input, std::vector<std::byte>* out);

// Reads and checks the header alone (magic, version, codec, sizes, checksum). INVALID_ARGUMENT or
// DATA_LOSS (checksum) say which field, found what, wanted what.
absl::StatusOr<FrameHeader> ReadFrameHeader(absl::Span<const std::byte> frame);

// OK only if `frame` is whole and right for a chunk of `count` elements: what DecodeAddFrame
// accepts.
absl::Status ValidateFrame(absl::Span<const std::byte> frame, size_t count);

// Adds the decoded chunk to `sum`. Any bytes are allowed; on error `sum` is unchanged.
absl::Status DecodeAddFrame(absl::Span<const std::byte> frame, absl::Span<float> sum);

// Of a frame that ReadFrameHeader accepted.
uint32_t FrameChecksum(absl::Span<const std::byte> frame);

}  // namespace sluice
