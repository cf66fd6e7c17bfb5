#include "job/support.h"

namespace sluice {
namespace {

constexpr absl::string_view kNeedsServerRule =
    "a step of async or ssp closes at every contribution, so there is no mean for the workers' "
    "optimizers to apply; it needs a rule on the shards";

constexpr SupportRow kRows[] = {
    {"sync", "average", CodecClass::kLossless, "fixed", Support::kBuilt, "", ""},
    {"sync", "average", CodecClass::kDense, "fixed", Support::kBuilt, "", ""},
    {"sync", "average", CodecClass::kSparse, "fixed", Support::kBuilt, "", ""},
    {"sync", "average", std::nullopt, "elastic", Support::kNotYet, "membership",
     "elastic is not built yet; use fixed"},
    {"sync", "", std::nullopt, "", Support::kNotYet, "mode",
     "update rules on the shards are not built yet; the workers' optimizers apply the mean"},
    {"async", "average", std::nullopt, "", Support::kImpossible, "mode", kNeedsServerRule},
    {"ssp", "average", std::nullopt, "", Support::kImpossible, "mode", kNeedsServerRule},
    {"async", "", std::nullopt, "", Support::kNotYet, "mode", "async is not built yet; use sync"},
    {"ssp", "", std::nullopt, "", Support::kNotYet, "mode", "ssp is not built yet; use sync"},
    {"local_sgd", "", std::nullopt, "", Support::kNotYet, "mode",
     "local_sgd is not built yet; use sync"},
};

constexpr SupportRow kNoRow = {"",
                               "",
                               std::nullopt,
                               "",
                               Support::kImpossible,
                               "mode",
                               "there is no such combination of mode, update rule and membership"};

bool Fits(const SupportRow& row, const SupportQuery& query) {
  return (row.mode.empty() || row.mode == query.mode) &&
         (row.rule.empty() || row.rule == query.rule) &&
         (!row.codec_class || *row.codec_class == query.codec_class) &&
         (row.membership.empty() || row.membership == query.membership);
}

}  // namespace

CodecClass ClassOf(const CodecSpec& codec) {
  switch (codec.codec) {
    case CodecId::kNone:
      return CodecClass::kLossless;
    case CodecId::kFp16:
    case CodecId::kBf16:
    case CodecId::kInt8:
      return CodecClass::kDense;
    case CodecId::kTopK:
    case CodecId::kTernary:
      return CodecClass::kSparse;
  }
  return CodecClass::kSparse;
}

absl::string_view UsualRule(absl::string_view mode) {
  return mode == "async" || mode == "ssp" ? "accumulate" : "average";
}

absl::Span<const SupportRow> SupportMatrix() { return kRows; }

const SupportRow& FindSupport(const SupportQuery& query) {
  for (const SupportRow& row : kRows) {
    if (Fits(row, query)) return row;
  }
  return kNoRow;
}

}  // namespace sluice
