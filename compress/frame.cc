// SPDX-License-Identifier: Apache-2.0
#include "compress/frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/format_table.h"
#include "compress/simd/accumulate.h"

namespace sluice::compress {
namespace {

constexpr uint16_t kMagic = 0x4C53;  // "SL".
constexpr uint8_t kVersion = 1;
constexpr size_t kChecksumAt = 16;

uint32_t ComputeChecksum(absl::Span<const std::byte> frame) {
  return ExtendCrc32c(Crc32c(frame.first(kChecksumAt)), frame.subspan(kFrameHeaderSize));
}

// Writes the header of a frame whose payload is already in place.
void WriteHeader(FormatId format, size_t count, absl::Span<std::byte> frame) {
  StoreAt(frame.data(), 0, kMagic);
  StoreAt(frame.data() + 2, 0, kVersion);
  StoreAt(frame.data() + 3, 0, static_cast<uint8_t>(format));
  StoreAt(frame.data() + 4, 0, static_cast<uint32_t>(count));
  StoreAt(frame.data() + 8, 0, static_cast<uint32_t>(frame.size() - kFrameHeaderSize));
  StoreAt(frame.data() + 12, 0, uint16_t{0});  // Flags.
  StoreAt(frame.data() + 14, 0, uint16_t{0});  // Reserved.
  StoreAt(frame.data() + kChecksumAt, 0, ComputeChecksum(frame));
}

absl::Status CheckOpening(absl::Span<const std::byte> frame) {
  ByteReader reader(frame);
  const uint16_t magic = reader.Read<uint16_t>();
  if (!reader.ok() || magic != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a frame: its ", frame.size(), " bytes do not begin with \"SL\""));
  }
  const uint8_t version = reader.Read<uint8_t>();
  if (reader.ok() && version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame version ", version, ", this program reads version ", kVersion,
                     version > kVersion ? ": the sender is newer, update this program" : ""));
  }
  if (frame.size() < kFrameHeaderSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "truncated frame: ", frame.size(), " bytes, the header alone has ", kFrameHeaderSize));
  }
  return absl::OkStatus();
}

}  // namespace

size_t MaxFrameSize(const Codec& codec, size_t count, uint32_t rows) {
  return kFrameHeaderSize + codec.MaxPayloadSize(count, rows);
}

absl::Status CheckFrameSize(const Codec& codec, size_t count, uint32_t rows) {
  const size_t largest = MaxFrameSize(codec, count, rows);
  if (largest <= kMaxFrameSize) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a frame of ", count, " elements may take ", largest, " bytes, more than the limit of ",
      kMaxFrameSize, ": cut the tensor into smaller chunks"));
}

absl::Status EncodeFrame(const Codec& codec, const EncodeInput& input,
                         std::vector<std::byte>* out) {
  if (input.scratch == nullptr) {
    EncodeScratch scratch;
    EncodeInput with_scratch = input;
    with_scratch.scratch = &scratch;
    return EncodeFrame(codec, with_scratch, out);
  }
  const size_t count = input.gradient.size();
  absl::Status fits = CheckFrameSize(codec, count, input.rows);
  if (!fits.ok()) return fits;
  if (!input.finite) {
    absl::Status finite = CheckAccumulator(input.gradient, input.residual);
    if (!finite.ok()) return finite;
  }
  const size_t at = out->size();
  out->resize(at + kFrameHeaderSize);
  codec.Encode(input, out);
  WriteHeader(codec.format(), count, absl::MakeSpan(*out).subspan(at));
  return absl::OkStatus();
}

void AppendFrame(FormatId format, size_t count, absl::Span<const std::byte> payload,
                 std::vector<std::byte>* out) {
  const size_t at = out->size();
  out->resize(at + kFrameHeaderSize);
  out->insert(out->end(), payload.begin(), payload.end());
  WriteHeader(format, count, absl::MakeSpan(*out).subspan(at));
}

absl::StatusOr<FrameHeader> ReadFrameHeader(absl::Span<const std::byte> frame) {
  absl::Status opening = CheckOpening(frame);
  if (!opening.ok()) return opening;
  ByteReader reader(frame.subspan(3));
  FrameHeader header;
  const uint8_t format = reader.Read<uint8_t>();
  header.format = static_cast<FormatId>(format);
  header.count = reader.Read<uint32_t>();
  header.payload_size = reader.Read<uint32_t>();
  const uint16_t flags = reader.Read<uint16_t>();
  const uint16_t reserved = reader.Read<uint16_t>();
  header.checksum = reader.Read<uint32_t>();
  const size_t payload_size = frame.size() - kFrameHeaderSize;
  if (header.payload_size != payload_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        header.payload_size > payload_size ? "truncated frame: " : "bytes after the frame's end: ",
        "its header says ", header.payload_size, " bytes of payload, it has ", payload_size));
  }
  // The checksum is verified before the fields that it covers are used. Otherwise a flipped bit
  // could be reported as an unknown format instead of as damage.
  const uint32_t checksum = ComputeChecksum(frame);
  if (checksum != header.checksum) {
    return absl::DataLossError(absl::StrFormat(
        "damaged frame: its checksum is %08x, its bytes give %08x", header.checksum, checksum));
  }
  if (flags != 0 || reserved != 0) {
    return absl::InvalidArgumentError(absl::StrCat("frame with flags ", flags, " and reserved ",
                                                   reserved, ", this program knows none"));
  }
  if (FindFormat(header.format) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of unknown format ", format, ": the sender may be newer"));
  }
  return header;
}

absl::Status ValidateFrame(absl::Span<const std::byte> frame, size_t count) {
  const absl::StatusOr<FrameHeader> header = ReadFrameHeader(frame);
  if (!header.ok()) return header.status();
  if (header->count != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of ", header->count, " elements for a chunk of ", count));
  }
  return FindFormat(header->format)->validate(FramePayload(frame), count);
}

absl::Status DecodeAddFrame(absl::Span<const std::byte> frame, absl::Span<float> sum) {
  absl::Status valid = ValidateFrame(frame, sum.size());
  if (!valid.ok()) return valid;
  const FormatEntry& format = FrameFormat(frame);
  if (format.decode_add == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", format.name, " frame cannot be decoded without earlier frames"));
  }
  format.decode_add(FramePayload(frame), sum);
  return absl::OkStatus();
}

absl::Span<const std::byte> PopFrame(absl::Span<const std::byte>* frames) {
  size_t size = frames->size();
  if (size >= kFrameHeaderSize) {
    size = std::min(size, kFrameHeaderSize + size_t{LoadAt<uint32_t>(frames->data() + 8, 0)});
  }
  const absl::Span<const std::byte> frame = frames->first(size);
  frames->remove_prefix(size);
  return frame;
}

absl::Status ValidateFrames(absl::Span<const std::byte> frames, size_t count) {
  do {
    absl::Status valid = ValidateFrame(PopFrame(&frames), count);
    if (!valid.ok()) return valid;
  } while (!frames.empty());
  return absl::OkStatus();
}

bool DecodeAlone(absl::Span<const std::byte> frames) {
  while (!frames.empty()) {
    if (FrameFormat(PopFrame(&frames)).decode_add == nullptr) return false;
  }
  return true;
}

absl::Status DecodeAddFrames(absl::Span<const std::byte> frames, absl::Span<float> sum) {
  absl::Status valid = ValidateFrames(frames, sum.size());
  if (!valid.ok()) return valid;
  if (!DecodeAlone(frames)) {
    return absl::InvalidArgumentError("frames that cannot be decoded without earlier frames");
  }
  AddValidFrames(frames, sum);
  return absl::OkStatus();
}

void AddValidFrames(absl::Span<const std::byte> frames, absl::Span<float> sum) {
  while (!frames.empty()) {
    const absl::Span<const std::byte> frame = PopFrame(&frames);
    FrameFormat(frame).decode_add(FramePayload(frame), sum);
  }
}

void AddScaledValidFrames(absl::Span<const std::byte> frames, float scale,
                          std::vector<float>* scratch, absl::Span<float> sum) {
  while (!frames.empty()) {
    const absl::Span<const std::byte> frame = PopFrame(&frames);
    const FormatEntry& format = FrameFormat(frame);
    if (!IsAddend(format)) continue;  // Such a frame contains no values.
    if (format.decode_add_scaled != nullptr) {
      format.decode_add_scaled(FramePayload(frame), scale, sum);
      continue;
    }
    scratch->assign(sum.size(), 0.0f);
    format.decode_add(FramePayload(frame), absl::MakeSpan(*scratch));
    AddScaled(scale, scratch->data(), sum.data(), sum.size());
  }
}

const FormatEntry& FrameFormat(absl::Span<const std::byte> frame) {
  return *FindFormat(static_cast<FormatId>(frame[3]));
}

uint32_t FrameChecksum(absl::Span<const std::byte> frame) {
  return LoadAt<uint32_t>(frame.data() + kChecksumAt, 0);
}

}  // namespace sluice::compress
