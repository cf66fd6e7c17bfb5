// SPDX-License-Identifier: Apache-2.0
// Frame: the self-describing encoding of one chunk, for transport and storage. docs/wire-format.md
// is normative. A frame has a header of 20 bytes (magic, version, format, flags, element count,
// payload size, CRC-32C), followed by the payload.
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
// Maximum size of a frame. Chunks are cut so that no frame can exceed it (protocol/layout.h).
inline constexpr size_t kMaxFrameSize = 4 << 20;

struct FrameHeader {
  FormatId format = FormatId::kNone;
  uint32_t count = 0;
  uint32_t payload_size = 0;
  // CRC-32C over the preceding header bytes and the payload.
  uint32_t checksum = 0;
};

// Returns an upper bound for the size of a frame of `count` elements in `rows` rows (0: flat).
size_t MaxFrameSize(const Codec& codec, size_t count, uint32_t rows = 0);

// Fails with INVALID_ARGUMENT if a frame of this shape could exceed kMaxFrameSize.
absl::Status CheckFrameSize(const Codec& codec, size_t count, uint32_t rows);

// Appends one frame to `*out`. Fails with INVALID_ARGUMENT and changes nothing if an element of acc
// is not finite (the message gives its index) or if the frame could exceed kMaxFrameSize. Allocates
// a scratch buffer if `input` has none.
absl::Status EncodeFrame(const Codec& codec, const EncodeInput& input, std::vector<std::byte>* out);

// Appends a frame around an existing payload.
void AppendFrame(FormatId format, size_t count, absl::Span<const std::byte> payload,
                 std::vector<std::byte>* out);

// Reads and checks only the header (magic, version, format, sizes, checksum). Fails with DATA_LOSS
// if the checksum is wrong, and otherwise with INVALID_ARGUMENT. The message names the field, its
// value and the expected value.
absl::StatusOr<FrameHeader> ReadFrameHeader(absl::Span<const std::byte> frame);

// Returns OK only if `frame` is complete and valid for a chunk of `count` elements. DecodeAddFrame
// accepts exactly these frames.
absl::Status ValidateFrame(absl::Span<const std::byte> frame, size_t count);

// Adds the decoded chunk to `sum`. Accepts any bytes. Leaves `sum` unchanged on error.
absl::Status DecodeAddFrame(absl::Span<const std::byte> frame, absl::Span<float> sum);

// These return the format and the payload of a frame that ReadFrameHeader accepted.
const FormatEntry& FrameFormat(absl::Span<const std::byte> frame);
inline absl::Span<const std::byte> FramePayload(absl::Span<const std::byte> frame) {
  return frame.subspan(kFrameHeaderSize);
}

// A published chunk consists of one frame and, with some codecs, a second frame for the chunk's
// senders. Each function below does the same as its counterpart above, for all frames in `frames`,
// which are stored one after another. There must be at least one frame.
absl::Status ValidateFrames(absl::Span<const std::byte> frames, size_t count);
// Returns true if frames that ValidateFrames accepted can be added without knowledge of earlier
// frames.
bool DecodeAlone(absl::Span<const std::byte> frames);
absl::Status DecodeAddFrames(absl::Span<const std::byte> frames, absl::Span<float> sum);
// Adds the decoded frames to `sum` without checks. ValidateFrames must have accepted the frames for
// sum.size() elements, and DecodeAlone must be true.
void AddValidFrames(absl::Span<const std::byte> frames, absl::Span<float> sum);
// Works like AddValidFrames, but computes sum[i] += scale * decoded[i]. For sparse frames, it
// accesses only the elements in the frames. Other formats use `*scratch`.
void AddScaledValidFrames(absl::Span<const std::byte> frames, float scale,
                          std::vector<float>* scratch, absl::Span<float> sum);
// Removes the first frame from `*frames` and returns it. The size comes from the frame's header. If
// that size is wrong, the function returns all remaining bytes.
absl::Span<const std::byte> PopFrame(absl::Span<const std::byte>* frames);

// Returns the checksum of a frame that ReadFrameHeader accepted.
uint32_t FrameChecksum(absl::Span<const std::byte> frame);

}  // namespace sluice::compress
