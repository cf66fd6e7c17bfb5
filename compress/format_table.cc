// SPDX-License-Identifier: Apache-2.0
#include "compress/format_table.h"

#include <algorithm>

#include "compress/codecs/blocktopk.h"
#include "compress/codecs/countsketch.h"
#include "compress/codecs/eden.h"
#include "compress/codecs/fp8.h"
#include "compress/codecs/half.h"
#include "compress/codecs/intsum.h"
#include "compress/codecs/linear.h"
#include "compress/codecs/lsh.h"
#include "compress/codecs/natural.h"
#include "compress/codecs/none.h"
#include "compress/codecs/powersgd.h"
#include "compress/codecs/qsgd.h"
#include "compress/codecs/randomk.h"
#include "compress/codecs/sign.h"
#include "compress/codecs/sparse.h"
#include "compress/codecs/ternary.h"
#include "compress/codecs/terngrad.h"
#include "compress/gpu/kernels/work.h"

namespace sluice::compress {
namespace {

using gpu::Addend;
using gpu::AddendKind;

uint8_t FirstByte(absl::Span<const std::byte> payload) {
  return payload.empty() ? uint8_t{0} : static_cast<uint8_t>(payload[0]);
}

template <Addend kAddend, uint8_t kBits = 0>
AddendKind Of(absl::Span<const std::byte>) {
  return {kAddend, kBits};
}
// The first byte of the payload is the number of bits of a code.
template <Addend kAddend>
AddendKind OfCoded(absl::Span<const std::byte> payload) {
  return {kAddend, FirstByte(payload)};
}
AddendKind OfFp8(absl::Span<const std::byte> payload) {
  return {FirstByte(payload) == 1 ? Addend::kFp8E5m2 : Addend::kFp8};
}
// A payload of rank 0 consists of the rank in one byte, followed by fp16 values.
AddendKind OfLowRank(absl::Span<const std::byte> payload) {
  return {FirstByte(payload) == 0 ? Addend::kFp16 : Addend::kLowRank};
}

constexpr FormatEntry kFormats[] = {
    {FormatId::kNone, "none", &ValidateNone, &DecodeAddNone, &Of<Addend::kFp32>, nullptr,
     &DecodeAddScaledNone, &DecodeAddPartNone},
    {FormatId::kFp16, "fp16", &ValidateFp16, &DecodeAddFp16, &Of<Addend::kFp16>, nullptr, nullptr,
     &DecodeAddPartFp16},
    {FormatId::kBf16, "bf16", &ValidateBf16, &DecodeAddBf16, &Of<Addend::kBf16>, nullptr, nullptr,
     &DecodeAddPartBf16},
    {FormatId::kInt8, "int8", &ValidateInt8, &DecodeAddInt8, &Of<Addend::kLinear, 8>,
     &DecodeAddAllInt8, nullptr, &DecodeAddPartInt8},
    {FormatId::kSparse, "sparse", &ValidateSparse, &DecodeAddSparse, &Of<Addend::kSparse>, nullptr,
     &DecodeAddScaledSparse, nullptr, &EstimateSquaresSparse, &ForEachBatchSparse},
    {FormatId::kTernary, "ternary", &ValidateTernary, &DecodeAddTernary, &Of<Addend::kTernary>},
    {FormatId::kFp8, "fp8", &ValidateFp8, &DecodeAddFp8, &OfFp8},
    {FormatId::kInt4, "int4", &ValidateInt4, &DecodeAddInt4, &Of<Addend::kLinear, 4>,
     &DecodeAddAllInt4, nullptr, &DecodeAddPartInt4},
    {FormatId::kInt2, "int2", &ValidateInt2, &DecodeAddInt2, &Of<Addend::kLinear, 2>,
     &DecodeAddAllInt2, nullptr, &DecodeAddPartInt2},
    {FormatId::kMinMax, "minmax", &ValidateMinMax, &DecodeAddMinMax, &OfCoded<Addend::kMinMax>},
    {FormatId::kQsgd, "qsgd", &ValidateQsgd, &DecodeAddQsgd, &OfCoded<Addend::kQsgd>},
    {FormatId::kTernGrad, "terngrad", &ValidateTernGrad, &DecodeAddTernGrad, &Of<Addend::kFp32>},
    {FormatId::kNatural, "natural", &ValidateNatural, &DecodeAddNatural, &Of<Addend::kNatural>},
    {FormatId::kSign, "sign", &ValidateSign, &DecodeAddSign, &Of<Addend::kSign>},
    {FormatId::kOneBit, "onebit", &ValidateOneBit, &DecodeAddOneBit, &Of<Addend::kOneBit>},
    {FormatId::kBlockTopK, "blocktopk", &ValidateBlockTopK, &DecodeAddBlockTopK,
     &Of<Addend::kBlockTopK>},
    {FormatId::kRandomK, "randomk", &ValidateRandomK, &DecodeAddRandomK, &Of<Addend::kRandomK>},
    {FormatId::kSketch, "sketch", &ValidateSketch, nullptr, &Of<Addend::kFp32>},
    {FormatId::kLsh, "lsh", &ValidateLsh, nullptr, &Of<Addend::kFp32>},
    {FormatId::kLowRank, "low-rank", &ValidateLowRank, &DecodeAddLowRank, &OfLowRank},
    {FormatId::kRotated, "rotated", &ValidateRotated, &DecodeAddRotated, &Of<Addend::kRotated>},
    {FormatId::kIntSum, "intsum", &ValidateIntSum, &DecodeAddIntSum, &OfCoded<Addend::kIntSum>},
    {FormatId::kExponents, "exponents", &ValidateExponents, &DecodeAddExponents,
     &Of<Addend::kNothing>},
};
static_assert(std::ranges::all_of(kFormats, [](const FormatEntry& format) {
  return format.validate != nullptr && format.on_gpu != nullptr;
}));

}  // namespace

const FormatEntry* FindFormat(FormatId id) {
  for (const FormatEntry& entry : kFormats) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

}  // namespace sluice::compress
