// Frame: the self-describing encoding of one chunk, as it travels and as it is stored.
// docs/wire-format.md is normative. 20 bytes of header (magic, version, format, flags, element
// count, payload size, CRC-32C), then the payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compress/codec.h"

namespace sluice::compress {

inline constexpr size_t kFrameHeaderSize = 20;
// A frame over this is never made: chunks are cut so that it cannot be (protocol/layout.h).
inline constexpr size_t kMaxFrameSize = 4 << 20;

struct FrameHeader {
  FormatId format = FormatId::kNone;
  uint32_t count = 0;
  uint32_t payload_size = 0;
  uint32_t checksum = 0;  // CRC-32C over the header before it and the payload.
};

// Upper bound of a frame of `count` elements in `rows` rows (0: flat).
size_t MaxFrameSize(const Codec& codec, size_t count, uint32_t rows = 0);

// INVALID_ARGUMENT if such a frame could be over kMaxFrameSize.
absl::Status CheckFrameSize(const Codec& codec, size_t count, uint32_t rows);

// Appends one frame to `*out`. INVALID_ARGUMENT if acc is not finite somewhere (the message gives
// the index) or the frame could be over kMaxFrameSize; then nothing changed. Without a scratch in
// `input` it allocates one.
absl::Status EncodeFrame(const Codec& codec, const EncodeInput& input, std::vector<std::byte>* out);

// Appends a frame around a payload that is there already.
void AppendFrame(FormatId format, size_t count, absl::Span<const std::byte> payload,
                 std::vector<std::byte>* out);

// Reads and checks the header alone (magic, version, format, sizes, checksum). INVALID_ARGUMENT or
// DATA_LOSS (checksum) say which field, found what, wanted what.
absl::StatusOr<FrameHeader> ReadFrameHeader(absl::Span<const std::byte> frame);

// OK only if `frame` is whole and right for a chunk of `count` elements: what DecodeAddFrame
// accepts.
absl::Status ValidateFrame(absl::Span<const std::byte> frame, size_t count);

// Adds the decoded chunk to `sum`. Any bytes are allowed; on error `sum` is unchanged.
absl::Status DecodeAddFrame(absl::Span<const std::byte> frame, absl::Span<float> sum);

// Format and payload of a frame that ReadFrameHeader accepted.
const FormatEntry& FrameFormat(absl::Span<const std::byte> frame);
inline absl::Span<const std::byte> FramePayload(absl::Span<const std::byte> frame) {
  return frame.subspan(kFrameHeaderSize);
}

// A published chunk is one frame, and with some codecs a second one for its senders. The same as
// above for all frames that lie one after the other in `frames`, of which there is at least one.
absl::Status ValidateFrames(absl::Span<const std::byte> frames, size_t count);
// Whether frames that ValidateFrames accepted can be added without knowing what came before them.
bool DecodeAlone(absl::Span<const std::byte> frames);
absl::Status DecodeAddFrames(absl::Span<const std::byte> frames, absl::Span<float> sum);
// Of frames that ValidateFrames accepted for sum.size() elements and DecodeAlone: neither is looked
// at again.
void AddValidFrames(absl::Span<const std::byte> frames, absl::Span<float> sum);
// As above, sum[i] += scale * decoded[i]. Of sparse frames only the elements that they name are
// touched; `*scratch` is for the others.
void AddScaledValidFrames(absl::Span<const std::byte> frames, float scale,
                          std::vector<float>* scratch, absl::Span<float> sum);
// Takes the first frame off `*frames` as its header says: all of the rest if that lies.
absl::Span<const std::byte> TakeFrame(absl::Span<const std::byte>* frames);

// Of a frame that ReadFrameHeader accepted.
uint32_t FrameChecksum(absl::Span<const std::byte> frame);

}  // namespace sluice::compress
