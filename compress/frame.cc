#include "compress/frame.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "compress/codec_table.h"
#include "compress/payload.h"

namespace sluice {
namespace {

constexpr uint16_t kMagic = 0x4C53;  // "SL".
constexpr uint8_t kVersion = 1;
constexpr size_t kChecksumAt = 16;

uint32_t ComputeChecksum(absl::Span<const std::byte> frame) {
  return ExtendCrc32c(Crc32c(frame.first(kChecksumAt)), frame.subspan(kFrameHeaderSize));
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

size_t MaxFrameSize(const Codec& codec, size_t count) {
  return kFrameHeaderSize + codec.MaxPayloadSize(count);
}

absl::Status EncodeFrame(const Codec& codec, const EncodeInput& input,
                         std::vector<std::byte>* out) {
  const size_t count = input.gradient.size();
  if (MaxFrameSize(codec, count) > kMaxFrameSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame of ", count, " elements may take ", MaxFrameSize(codec, count),
        " bytes, more than the limit of ", kMaxFrameSize, ": cut the tensor into smaller chunks"));
  }
  const size_t at = out->size();
  out->resize(at + kFrameHeaderSize);
  absl::Status encoded = codec.Encode(input, out);
  if (!encoded.ok()) {
    out->resize(at);
    return encoded;
  }
  std::vector<std::byte> header;
  header.reserve(kFrameHeaderSize);
  ByteWriter writer(&header);
  writer.Write(kMagic);
  writer.Write(kVersion);
  writer.Write(static_cast<uint8_t>(codec.id()));
  writer.Write(static_cast<uint32_t>(count));
  writer.Write(static_cast<uint32_t>(out->size() - at - kFrameHeaderSize));
  writer.Write(uint16_t{0});  // Flags.
  writer.Write(uint16_t{0});  // Reserved.
  std::memcpy(out->data() + at, header.data(), kChecksumAt);
  const uint32_t checksum = ComputeChecksum(absl::MakeConstSpan(*out).subspan(at));
  std::memcpy(out->data() + at + kChecksumAt, &checksum, sizeof(checksum));
  return absl::OkStatus();
}

absl::StatusOr<FrameHeader> ReadFrameHeader(absl::Span<const std::byte> frame) {
  absl::Status opening = CheckOpening(frame);
  if (!opening.ok()) return opening;
  ByteReader reader(frame.subspan(3));
  FrameHeader header;
  const uint8_t codec = reader.Read<uint8_t>();
  header.codec = static_cast<CodecId>(codec);
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
  // Before the fields it covers are believed: a flipped bit is damage, not an unknown codec.
  const uint32_t checksum = ComputeChecksum(frame);
  if (checksum != header.checksum) {
    return absl::DataLossError(absl::StrFormat(
        "damaged frame: its checksum is %08x, its bytes give %08x", header.checksum, checksum));
  }
  if (flags != 0 || reserved != 0) {
    return absl::InvalidArgumentError(absl::StrCat("frame with flags ", flags, " and reserved ",
                                                   reserved, ", this program knows none"));
  }
  if (FindCodec(header.codec) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("frame of unknown codec ", codec));
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
  return FindCodec(header->codec)->validate(frame.subspan(kFrameHeaderSize), count);
}

absl::Status DecodeAddFrame(absl::Span<const std::byte> frame, absl::Span<float> sum) {
  absl::Status valid = ValidateFrame(frame, sum.size());
  if (!valid.ok()) return valid;
  const CodecId codec = static_cast<CodecId>(frame[3]);
  FindCodec(codec)->decode_add(frame.subspan(kFrameHeaderSize), sum);
  return absl::OkStatus();
}

uint32_t FrameChecksum(absl::Span<const std::byte> frame) {
  return LoadAt<uint32_t>(frame.data() + kChecksumAt, 0);
}

}  // namespace sluice
