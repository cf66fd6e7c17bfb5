// The support table: which combinations of codec, compensator, direction, mode, update rule and
// membership this version can run, and why it cannot run the others. Checked when a job is loaded;
// docs/compression.md shows it. What a codec and a compensator refuse in each other is theirs to
// say (compress/codec_table.h); here it meets modes and rules.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/codec_spec.h"
#include "protocol/compression_spec.h"

namespace sluice::job {
// Whether the workers of a job in this mode take every step together; else each has its own pace.
bool InLockstep(absl::string_view mode);

// What the shards of a job do with what workers send: `average` (publish the mean), `accumulate`
// (add changes of weights up), `outer` (an optimizer over changes of weights), or the optimizer
// that the job has `on` the shards. `on`: workers or shards.
absl::string_view RuleOf(absl::string_view mode, absl::string_view on, absl::string_view optimizer);

struct SupportQuery {
  absl::string_view mode;
  absl::string_view rule;
  absl::string_view membership;
  compress::CodecSpec codec;
  protocol::Direction direction = protocol::Direction::kUplink;
  bool quorum = false;  // Steps close without those who are late.
  bool plans = false;   // Codecs change while the job runs (control.policy).
  bool relays = false;  // Workers are in racks behind relays.
};

enum class Support { kBuilt, kNotYet, kImpossible };

struct SupportAnswer {
  Support support = Support::kBuilt;
  absl::string_view key;     // Of the job file: what to change; empty: the codec.
  absl::string_view reason;  // Empty if built.
};

// Every query has an answer.
SupportAnswer FindSupport(const SupportQuery& query);

// Why a job like this cannot have relays, whatever its codecs are; empty: it can.
absl::string_view RelaysRefusal(const SupportQuery& query);

// A row about mode, rule and membership alone. Empty members stand for anything; the first row that
// fits a query decides, and what no row names is impossible.
struct ModeRow {
  absl::string_view mode;
  absl::string_view rule;
  absl::string_view membership;
  Support support;
  absl::string_view key;
  absl::string_view reason;
};
absl::Span<const ModeRow> ModeRows();

// The whole table for docs/compression.md.
std::string SupportTableMarkdown();

}  // namespace sluice::job
