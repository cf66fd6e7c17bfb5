// The support matrix: which combinations of mode, update rule, codec class and membership this
// version can run, and why it cannot run the others. Checked when a job is loaded; docs/job-file.md
// shows it.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/codec_spec.h"

namespace sluice {

enum class CodecClass {
  kLossless,  // none
  kDense,     // Sends every element, rounded: fp16, bf16, int8.
  kSparse,    // Sends some elements, the others later: topk, ternary.
};

CodecClass ClassOf(const CodecSpec& codec);

// The update rule of a mode where the job names none: `average` where workers wait for each other.
absl::string_view UsualRule(absl::string_view mode);

struct SupportQuery {
  absl::string_view mode;
  absl::string_view rule;
  CodecClass codec_class = CodecClass::kLossless;
  absl::string_view membership;
};

enum class Support { kBuilt, kNotYet, kImpossible };

// A row of the matrix. Empty members stand for anything; the first row that fits a query decides.
struct SupportRow {
  absl::string_view mode;
  absl::string_view rule;
  std::optional<CodecClass> codec_class;
  absl::string_view membership;
  Support support;
  absl::string_view key;     // Of the job file: what to change.
  absl::string_view reason;  // Empty if built.
};

absl::Span<const SupportRow> SupportMatrix();

// Every query has a row: what no row names is impossible.
const SupportRow& FindSupport(const SupportQuery& query);

}  // namespace sluice
