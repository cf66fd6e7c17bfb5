#include "compress/codec_table.h"

#include "base/check.h"
#include "compress/half.h"
#include "compress/int8.h"
#include "compress/none.h"
#include "compress/ternary.h"
#include "compress/topk.h"

namespace sluice {
namespace {

constexpr CodecEntry kCodecs[] = {
    {CodecId::kNone, "none", "none", "fp32 as it is", &MakeNone, &ValidateNone, &DecodeAddNone},
    {CodecId::kFp16, "fp16", "fp16", "IEEE half precision: 2x, for small tensors and as baseline",
     &MakeFp16, &ValidateFp16, &DecodeAddFp16},
    {CodecId::kBf16, "bf16", "bf16", "upper half of fp32: 2x, no overflow, 8 bits of precision",
     &MakeBf16, &ValidateBf16, &DecodeAddBf16},
    {CodecId::kInt8, "int8", "int8", "8 bits with a scale per 256 elements: 4x", &MakeInt8,
     &ValidateInt8, &DecodeAddInt8},
    {CodecId::kTopK, "topk", "topk:1%+int4",
     "the largest share of elements, values fp16 or +int4: about 260x at 1%+int4", &MakeTopK,
     &ValidateTopK, &DecodeAddTopK},
    {CodecId::kTernary, "ternary", "ternary:0.5",
     "signs of what reaches a share of its block's largest: about 50x at 0.5", &MakeTernary,
     &ValidateTernary, &DecodeAddTernary},
};

}  // namespace

absl::Span<const CodecEntry> Codecs() { return kCodecs; }

const CodecEntry* FindCodec(CodecId id) {
  for (const CodecEntry& entry : kCodecs) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

std::unique_ptr<Codec> MakeCodec(const CodecSpec& spec) {
  const CodecEntry* const entry = FindCodec(spec.codec);
  Check(entry != nullptr, "a spec names a codec of the table");
  return entry->make(spec);
}

}  // namespace sluice
