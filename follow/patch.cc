// SPDX-License-Identifier: Apache-2.0
#include "follow/patch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/crc32c.h"

namespace sluice::follow {
namespace {

using compress::ElementType;

constexpr absl::string_view kMagic = "SLUICEPT";
constexpr uint16_t kFormatVersion = 1;
constexpr uint8_t kAnchorFlag = 1;
constexpr size_t kChecksumAt = kPatchHeaderSize - sizeof(uint32_t);
// A part's first word has the payload's size in its lower bits and the method in its upper byte.
constexpr int kSizeBits = 24;
constexpr uint32_t kSizeMask = (uint32_t{1} << kSizeBits) - 1;
constexpr absl::string_view kFetchAgain = "; fetch the file again";

// The ids of element types in patches. Never reuse one.
constexpr struct {
  ElementType type;
  uint8_t id;
} kTypeIds[] = {
    {ElementType::kBfloat16, 0}, {ElementType::kFloat16, 1}, {ElementType::kFloat32, 2}};

uint8_t IdOf(ElementType type) {
  for (const auto& entry : kTypeIds) {
    if (entry.type == type) return entry.id;
  }
  return 0;
}

uint64_t ChunksOf(uint64_t elements) { return (elements + kChunkElements - 1) / kChunkElements; }

size_t ElementsOfChunk(uint64_t elements, uint64_t chunk) {
  return static_cast<size_t>(std::min<uint64_t>(kChunkElements, elements - chunk * kChunkElements));
}

absl::Status RefusePatch(absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("the patch ", problem));
}

void WriteDigest(const Digest& digest, ByteWriter* writer) { writer->WriteBytes(digest); }

void AppendHeader(const PatchHeader& header, absl::Span<const std::byte> table,
                  std::vector<std::byte>* out) {
  ByteWriter writer(out);
  writer.WriteBytes({reinterpret_cast<const std::byte*>(kMagic.data()), kMagic.size()});
  writer.Write(kFormatVersion);
  writer.Write(IdOf(header.type));
  writer.Write(header.anchor ? kAnchorFlag : uint8_t{0});
  writer.Write(static_cast<uint32_t>(table.size()));
  writer.Write(header.elements);
  writer.Write(header.base_version);
  writer.Write(header.version);
  WriteDigest(header.layout, &writer);
  WriteDigest(header.base, &writer);
  WriteDigest(header.result, &writer);
  writer.Write(uint64_t{0});  // Reserved.
  writer.Write(uint32_t{0});  // Reserved.
  writer.Write(ExtendCrc32c(Crc32c(*out), table));
  writer.WriteBytes(table);
}

void AppendPart(ChunkMethod method, absl::Span<const std::byte> payload,
                std::vector<std::byte>* out) {
  const size_t at = out->size();
  ByteWriter writer(out);
  writer.Write(static_cast<uint32_t>(payload.size()) | static_cast<uint32_t>(method) << kSizeBits);
  const uint32_t checksum = ExtendCrc32c(Crc32c(absl::MakeConstSpan(*out).subspan(at)), payload);
  writer.Write(checksum);
  writer.WriteBytes(payload);
}

absl::Status CheckWeights(const TensorLayout& layout, ElementType type, size_t bytes) {
  const absl::StatusOr<uint64_t> elements = CheckLayout(layout);
  if (!elements.ok()) return elements.status();
  if (*elements * BytesOf(type) == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the model has ", bytes, " bytes of weights, but ",
                                                 "its tensors have ", *elements, " elements of ",
                                                 BytesOf(type), " bytes"));
}

// Reads the fields of a header whose checksum is right. `*table_bytes` is the table's size.
absl::StatusOr<PatchHeader> ReadFields(ByteReader* reader) {
  const auto type = reader->Read<uint8_t>();
  const auto flags = reader->Read<uint8_t>();
  const auto table_bytes = reader->Read<uint32_t>();
  PatchHeader header;
  const auto* const entry = std::find_if(std::begin(kTypeIds), std::end(kTypeIds),
                                         [&](const auto& one) { return one.id == type; });
  if (entry == std::end(kTypeIds)) return RefusePatch(absl::StrCat("has the unknown type ", type));
  if (flags > kAnchorFlag) return RefusePatch(absl::StrCat("has unknown flags: ", flags));
  header.type = entry->type;
  header.anchor = flags == kAnchorFlag;
  header.elements = reader->Read<uint64_t>();
  header.base_version = reader->Read<uint64_t>();
  header.version = reader->Read<uint64_t>();
  header.layout = reader->Read<Digest>();
  header.base = reader->Read<Digest>();
  header.result = reader->Read<Digest>();
  if (reader->Read<uint64_t>() != 0 || reader->Read<uint32_t>() != 0) {
    return RefusePatch("has reserved bytes that are not 0");
  }
  if (header.elements > kElementsMax) {
    return RefusePatch(
        absl::StrCat("has ", header.elements, " elements; at most ", kElementsMax, " are allowed"));
  }
  const bool anchor_fields = header.base_version == 0 && header.base == Digest{};
  if (header.anchor ? !anchor_fields : header.base_version >= header.version) {
    return RefusePatch(absl::StrCat("has base version ", header.base_version, " and version ",
                                    header.version, ", which do not fit together"));
  }
  if (!header.anchor && table_bytes > 0) return RefusePatch("has a tensor table, but is no anchor");
  return header;
}

// Checks the magic, the format version, the size and the checksum. Returns the table.
absl::StatusOr<absl::Span<const std::byte>> CheckEnvelope(absl::Span<const std::byte> bytes) {
  if (!LooksLikePatch(bytes))
    return RefusePatch("does not begin with SLUICEPT: is it another file?");
  if (bytes.size() < kPatchHeaderSize) {
    return RefusePatch(
        absl::StrCat("ends after ", bytes.size(), " bytes, in its header", kFetchAgain));
  }
  ByteReader reader(bytes.subspan(kMagic.size()));
  const auto format_version = reader.Read<uint16_t>();
  if (format_version > kFormatVersion) {
    return RefusePatch(absl::StrCat("has format version ", format_version,
                                    ", but this program reads ", kFormatVersion,
                                    ": use the version of Sluice that wrote it"));
  }
  if (format_version == 0) return RefusePatch("has format version 0");
  reader.Read<uint16_t>();
  const auto table_bytes = reader.Read<uint32_t>();
  if (table_bytes > kLayoutBytesMax) {
    return RefusePatch(absl::StrCat("has a tensor table of ", table_bytes, " bytes; at most ",
                                    kLayoutBytesMax, " are allowed"));
  }
  if (table_bytes > bytes.size() - kPatchHeaderSize) {
    return RefusePatch(absl::StrCat("ends in its tensor table", kFetchAgain));
  }
  const absl::Span<const std::byte> table = bytes.subspan(kPatchHeaderSize, table_bytes);
  ByteReader end(bytes.subspan(kChecksumAt));
  if (end.Read<uint32_t>() != ExtendCrc32c(Crc32c(bytes.first(kChecksumAt)), table)) {
    return absl::DataLossError(
        absl::StrCat("the checksum of the patch's header is wrong", kFetchAgain));
  }
  return table;
}

// Reads and checks the next part, of a chunk of `count` elements.
absl::StatusOr<Patch::Part> ReadPart(const PatchHeader& header, uint64_t chunk, size_t count,
                                     ByteReader* reader) {
  const absl::Span<const std::byte> first = reader->ReadBytes(sizeof(uint32_t));
  const auto checksum = reader->Read<uint32_t>();
  const std::string place = absl::StrCat("part ", chunk, " of ", ChunksOf(header.elements));
  if (!reader->ok()) {
    return RefusePatch(absl::StrCat("ends before ", place, kFetchAgain));
  }
  uint32_t word = 0;
  std::memcpy(&word, first.data(), sizeof(word));
  Patch::Part part{.method = static_cast<ChunkMethod>(word >> kSizeBits),
                   .payload = reader->ReadBytes(word & kSizeMask)};
  if (!reader->ok()) return RefusePatch(absl::StrCat("ends in ", place, kFetchAgain));
  if (checksum != ExtendCrc32c(Crc32c(first), part.payload)) {
    return absl::DataLossError(
        absl::StrCat("the checksum of the patch's ", place, " is wrong", kFetchAgain));
  }
  if (header.anchor && part.method != ChunkMethod::kRaw) {
    return RefusePatch(
        absl::StrCat("is an anchor, but ", place, " does not hold complete weights"));
  }
  const absl::string_view problem = ChunkProblem(header.type, part.method, part.payload, count);
  if (!problem.empty()) {
    return RefusePatch(
        absl::StrCat("has an invalid ", place, ": ", problem, "; it was not written by Sluice"));
  }
  return part;
}

}  // namespace

bool LooksLikePatch(absl::Span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

absl::StatusOr<std::vector<std::byte>> EncodePatch(const PatchVersions& versions,
                                                   const TensorLayout& layout, ElementType type,
                                                   absl::Span<const std::byte> before,
                                                   absl::Span<const std::byte> after) {
  if (versions.base_version >= versions.version) {
    return absl::InvalidArgumentError(absl::StrCat("a patch leads to a higher version, not from ",
                                                   versions.base_version, " to ",
                                                   versions.version));
  }
  for (const absl::Span<const std::byte> weights : {before, after}) {
    if (absl::Status fits = CheckWeights(layout, type, weights.size()); !fits.ok()) return fits;
  }
  std::vector<std::byte> patch, payload;
  AppendHeader(
      {.type = type,
       .anchor = false,
       .elements = before.size() / BytesOf(type),
       .base_version = versions.base_version,
       .version = versions.version,
       .layout = LayoutDigest(layout),
       .base = versions.base.has_value() ? *versions.base : WeightsDigest(type, before),
       .result = versions.result.has_value() ? *versions.result : WeightsDigest(type, after)},
      {}, &patch);
  const size_t chunk_bytes = kChunkElements * BytesOf(type);
  for (size_t at = 0; at < before.size(); at += chunk_bytes) {
    payload.clear();
    const ChunkMethod method = AppendChunk(type, before.subspan(at, chunk_bytes),
                                           after.subspan(at, chunk_bytes), &payload);
    AppendPart(method, payload, &patch);
  }
  return patch;
}

absl::StatusOr<std::vector<std::byte>> EncodeAnchor(uint64_t version, const TensorLayout& layout,
                                                    ElementType type,
                                                    absl::Span<const std::byte> weights,
                                                    const std::optional<Digest>& digest) {
  if (absl::Status fits = CheckWeights(layout, type, weights.size()); !fits.ok()) return fits;
  std::vector<std::byte> anchor;
  const std::vector<std::byte> table = SerializeLayout(layout);
  AppendHeader({.type = type,
                .anchor = true,
                .elements = weights.size() / BytesOf(type),
                .base_version = 0,
                .version = version,
                .layout = Sha256Of(table),
                .base = {},
                .result = digest.has_value() ? *digest : WeightsDigest(type, weights)},
               table, &anchor);
  const size_t chunk_bytes = kChunkElements * BytesOf(type);
  for (size_t at = 0; at < weights.size(); at += chunk_bytes) {
    AppendPart(ChunkMethod::kRaw, weights.subspan(at, chunk_bytes), &anchor);
  }
  return anchor;
}

absl::StatusOr<Patch> Patch::Parse(absl::Span<const std::byte> bytes) {
  const absl::StatusOr<absl::Span<const std::byte>> table = CheckEnvelope(bytes);
  if (!table.ok()) return table.status();
  ByteReader fields(bytes.subspan(kMagic.size() + sizeof(kFormatVersion)));
  absl::StatusOr<PatchHeader> header = ReadFields(&fields);
  if (!header.ok()) return header.status();
  Patch patch;
  patch.header_ = *header;
  if (header->anchor) {
    absl::StatusOr<TensorLayout> layout = ParseLayout(*table);
    if (!layout.ok()) return layout.status();
    patch.layout_ = *std::move(layout);
    const absl::StatusOr<uint64_t> elements = CheckLayout(patch.layout_);
    if (!elements.ok() || *elements != header->elements) {
      return RefusePatch("has another number of elements than its tensor table");
    }
    if (Sha256Of(*table) != header->layout)
      return RefusePatch("has a wrong digest of its tensor table");
  }
  ByteReader reader(bytes.subspan(kPatchHeaderSize + table->size()));
  for (uint64_t chunk = 0; chunk < ChunksOf(header->elements); ++chunk) {
    const size_t count = ElementsOfChunk(header->elements, chunk);
    absl::StatusOr<Part> part = ReadPart(*header, chunk, count, &reader);
    if (!part.ok()) return part.status();
    patch.changed_ += ChangedElements(part->method, part->payload, count);
    patch.parts_.push_back(*part);
  }
  if (reader.remaining() > 0) {
    return RefusePatch(absl::StrCat("has ", reader.remaining(), " bytes after its last part"));
  }
  return patch;
}

absl::Status Patch::Apply(const Digest& current, absl::Span<std::byte> weights) const {
  const size_t width = BytesOf(header_.type);
  if (weights.size() != header_.elements * width) {
    return absl::FailedPreconditionError(
        absl::StrCat("the patch is for ", header_.elements, " elements of ", width,
                     " bytes, but the model has ", weights.size(), " bytes of weights"));
  }
  if (!header_.anchor && current != header_.base) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the patch to version ", header_.version, " needs version ", header_.base_version,
        " with digest ", ToHex(header_.base), ", but the model has digest ", ToHex(current),
        ": apply the patches in between, or begin with an anchor"));
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    ApplyChunk(header_.type, parts_[i].method, parts_[i].payload,
               weights.subspan(i * kChunkElements * width, kChunkElements * width));
  }
  const Digest result = WeightsDigest(header_.type, weights);
  if (result == header_.result) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "the patch to version ", header_.version, " announces digest ", ToHex(header_.result),
      ", but leads to ", ToHex(result), ": discard these weights and begin with an anchor"));
}

}  // namespace sluice::follow
