#include "compress/format_table.h"

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

namespace sluice::compress {
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

const FormatEntry* FindFormat(FormatId id) {
  for (const FormatEntry& entry : kFormats) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

}  // namespace sluice::compress
