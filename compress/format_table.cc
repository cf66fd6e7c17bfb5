#include "compress/format_table.h"

#include "compress/blocktopk.h"
#include "compress/countsketch.h"
#include "compress/eden.h"
#include "compress/fp8.h"
#include "compress/half.h"
#include "compress/intsum.h"
#include "compress/linear.h"
#include "compress/lsh.h"
#include "compress/natural.h"
#include "compress/none.h"
#include "compress/powersgd.h"
#include "compress/qsgd.h"
#include "compress/randomk.h"
#include "compress/sign.h"
#include "compress/sparse.h"
#include "compress/ternary.h"
#include "compress/terngrad.h"

namespace sluice {
namespace {

constexpr FormatEntry kFormats[] = {
    {FormatId::kNone, "none", &ValidateNone, &DecodeAddNone, nullptr, &DecodeAddScaledNone},
    {FormatId::kFp16, "fp16", &ValidateFp16, &DecodeAddFp16},
    {FormatId::kBf16, "bf16", &ValidateBf16, &DecodeAddBf16},
    {FormatId::kInt8, "int8", &ValidateInt8, &DecodeAddInt8, &DecodeAddAllInt8},
    {FormatId::kSparse, "sparse", &ValidateSparse, &DecodeAddSparse, nullptr,
     &DecodeAddScaledSparse},
    {FormatId::kTernary, "ternary", &ValidateTernary, &DecodeAddTernary},
    {FormatId::kFp8, "fp8", &ValidateFp8, &DecodeAddFp8},
    {FormatId::kInt4, "int4", &ValidateInt4, &DecodeAddInt4, &DecodeAddAllInt4},
    {FormatId::kInt2, "int2", &ValidateInt2, &DecodeAddInt2, &DecodeAddAllInt2},
    {FormatId::kMinMax, "minmax", &ValidateMinMax, &DecodeAddMinMax},
    {FormatId::kQsgd, "qsgd", &ValidateQsgd, &DecodeAddQsgd},
    {FormatId::kTernGrad, "terngrad", &ValidateTernGrad, &DecodeAddTernGrad},
    {FormatId::kNatural, "natural", &ValidateNatural, &DecodeAddNatural},
    {FormatId::kSign, "sign", &ValidateSign, &DecodeAddSign},
    {FormatId::kOneBit, "onebit", &ValidateOneBit, &DecodeAddOneBit},
    {FormatId::kBlockTopK, "blocktopk", &ValidateBlockTopK, &DecodeAddBlockTopK},
    {FormatId::kRandomK, "randomk", &ValidateRandomK, &DecodeAddRandomK},
    {FormatId::kSketch, "sketch", &ValidateSketch, nullptr},
    {FormatId::kLsh, "lsh", &ValidateLsh, nullptr},
    {FormatId::kLowRank, "low-rank", &ValidateLowRank, &DecodeAddLowRank},
    {FormatId::kRotated, "rotated", &ValidateRotated, &DecodeAddRotated},
    {FormatId::kIntSum, "intsum", &ValidateIntSum, &DecodeAddIntSum},
    {FormatId::kExponents, "exponents", &ValidateExponents, &DecodeAddExponents},
};

}  // namespace

absl::Span<const FormatEntry> Formats() { return kFormats; }

const FormatEntry* FindFormat(FormatId id) {
  for (const FormatEntry& entry : kFormats) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

}  // namespace sluice
