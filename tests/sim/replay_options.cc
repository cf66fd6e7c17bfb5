// SPDX-License-Identifier: Apache-2.0
// Writes the options of a simulated job as lines of a replay script, field by field.
#include <charconv>
#include <functional>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/sim/replay_script.h"

namespace sluice {
namespace {

std::string Write(uint64_t value) { return absl::StrCat(value); }
std::string Write(uint32_t value) { return absl::StrCat(value); }
std::string Write(int64_t value) { return absl::StrCat(value); }
std::string Write(bool value) { return value ? "yes" : "no"; }
// Writes the shortest text that parses to the same number.
std::string Write(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end);
}
std::string Write(const std::string& value) { return value; }
std::string Write(job::Mode value) { return std::string(NameOf(value)); }
std::string Write(job::PolicyKind value) { return std::string(NameOf(value)); }
std::string Write(job::UpdateLocation value) { return std::string(NameOf(value)); }
std::string Write(job::MergeWeights value) { return std::string(NameOf(value)); }
std::string Write(job::MergeOver value) { return std::string(NameOf(value)); }
std::string Write(job::MergeMethod value) { return std::string(NameOf(value)); }
std::string Write(const compress::CodecSpec& value) { return ToString(value); }
std::string Write(job::ScheduleKind value) { return absl::StrCat(static_cast<int>(value)); }
std::string Write(const std::vector<job::SchedulePiece>& pieces) {
  if (pieces.empty()) return "none";
  return absl::StrJoin(pieces, " ", [](std::string* out, const job::SchedulePiece& piece) {
    absl::StrAppend(out, piece.from, ":", Write(piece.density));
  });
}
std::string Write(const std::vector<compress::CodecSpec>& specs) {
  if (specs.empty()) return "none";
  return absl::StrJoin(specs, " ", [](std::string* out, const compress::CodecSpec& spec) {
    absl::StrAppend(out, ToString(spec));
  });
}

template <typename Number>
bool ReadNumber(absl::string_view text, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool Read(absl::string_view text, uint64_t* value) { return ReadNumber(text, value); }
bool Read(absl::string_view text, uint32_t* value) { return ReadNumber(text, value); }
bool Read(absl::string_view text, int64_t* value) { return ReadNumber(text, value); }
bool Read(absl::string_view text, double* value) { return absl::SimpleAtod(text, value); }
bool Read(absl::string_view text, bool* value) {
  *value = text == "yes";
  return *value || text == "no";
}
bool Read(absl::string_view text, std::string* value) {
  *value = std::string(text);
  return !text.empty();
}
template <typename Enum>
bool ReadName(absl::string_view text, Enum* value) {
  const std::optional<Enum> known = FindByName<Enum>(text);
  if (known.has_value()) *value = *known;
  return known.has_value();
}
bool Read(absl::string_view text, job::Mode* value) { return ReadName(text, value); }
bool Read(absl::string_view text, job::PolicyKind* value) { return ReadName(text, value); }
bool Read(absl::string_view text, job::UpdateLocation* value) { return ReadName(text, value); }
bool Read(absl::string_view text, job::MergeWeights* value) { return ReadName(text, value); }
bool Read(absl::string_view text, job::MergeOver* value) { return ReadName(text, value); }
bool Read(absl::string_view text, job::MergeMethod* value) { return ReadName(text, value); }
bool Read(absl::string_view text, compress::CodecSpec* value) {
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
  if (spec.ok()) *value = *spec;
  return spec.ok();
}
bool Read(absl::string_view text, job::ScheduleKind* value) {
  uint32_t kind = 0;
  if (!Read(text, &kind) || kind > static_cast<uint32_t>(job::ScheduleKind::kCyclic)) return false;
  *value = static_cast<job::ScheduleKind>(kind);
  return true;
}
bool Read(absl::string_view text, std::vector<job::SchedulePiece>* pieces) {
  pieces->clear();
  if (text == "none") return true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, ':');
    job::SchedulePiece& piece = pieces->emplace_back();
    if (!Read(parts.first, &piece.from) || !Read(parts.second, &piece.density)) return false;
  }
  return true;
}
bool Read(absl::string_view text, std::vector<compress::CodecSpec>* specs) {
  specs->clear();
  if (text == "none") return true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!Read(word, &specs->emplace_back())) return false;
  }
  return true;
}

struct OptionField {
  const char* name;
  std::function<std::string(const SurvivalOptions&)> write;
  std::function<bool(absl::string_view, SurvivalOptions*)> read;
};

template <typename Access>
OptionField Field(const char* name, Access access) {
  return {name,
          [access](const SurvivalOptions& options) {
            SurvivalOptions copy = options;
            return Write(*access(&copy));
          },
          [access](absl::string_view text, SurvivalOptions* options) {
            return Read(text, access(options));
          }};
}

// A job has a rule if any line names one of the rule's fields.
job::OptimizerSpec* Rule(SurvivalOptions* options) {
  if (!options->rule.has_value()) options->rule.emplace();
  return &*options->rule;
}

#define SLUICE_FIELD(member) \
  Field(#member, [](SurvivalOptions* options) { return &options->member; })
#define SLUICE_RULE_FIELD(member) \
  Field("rule." #member, [](SurvivalOptions* options) { return &Rule(options)->member; })

const std::vector<OptionField>& JobFields() {
  static const auto* const fields =
      new std::vector<OptionField>{SLUICE_FIELD(data_seed),
                                   SLUICE_FIELD(ranks),
                                   SLUICE_FIELD(shards),
                                   SLUICE_FIELD(steps),
                                   SLUICE_FIELD(mode),
                                   SLUICE_FIELD(staleness),
                                   SLUICE_FIELD(staleness_aware_lr),
                                   SLUICE_FIELD(quiet_steps),
                                   SLUICE_FIELD(checkpoint_interval),
                                   SLUICE_FIELD(replay_limit),
                                   SLUICE_FIELD(compression.uplink),
                                   SLUICE_FIELD(compression.downlink),
                                   SLUICE_FIELD(compression.min_elements),
                                   SLUICE_FIELD(compression.layout.chunk_elements),
                                   SLUICE_FIELD(compression.layout.bundle_elements),
                                   SLUICE_FIELD(compression.layout.fragments),
                                   SLUICE_FIELD(compression.seed),
                                   SLUICE_FIELD(control.policy),
                                   SLUICE_FIELD(control.schedule.kind),
                                   SLUICE_FIELD(control.schedule.dense_steps),
                                   SLUICE_FIELD(control.schedule.start),
                                   SLUICE_FIELD(control.schedule.end),
                                   SLUICE_FIELD(control.schedule.steps),
                                   SLUICE_FIELD(control.schedule.stages),
                                   SLUICE_FIELD(control.schedule.pieces),
                                   SLUICE_FIELD(control.candidates),
                                   SLUICE_FIELD(control.overlap),
                                   SLUICE_FIELD(quorum),
                                   SLUICE_FIELD(grace_us),
                                   SLUICE_FIELD(merge.weights),
                                   SLUICE_FIELD(merge.over),
                                   SLUICE_FIELD(merge.method),
                                   SLUICE_FIELD(merge.late_decay),
                                   SLUICE_FIELD(parts_at_shards),
                                   SLUICE_FIELD(rejoin_us),
                                   SLUICE_FIELD(stall_us),
                                   SLUICE_FIELD(elastic),
                                   SLUICE_FIELD(begin),
                                   SLUICE_FIELD(least),
                                   SLUICE_FIELD(window_bytes),
                                   SLUICE_FIELD(tight_memory),
                                   SLUICE_FIELD(parameters_agree),
                                   SLUICE_FIELD(skip_share),
                                   SLUICE_FIELD(nan_share),
                                   SLUICE_FIELD(late_rank),
                                   SLUICE_FIELD(crash_after_result_of)};
  return *fields;
}

const std::vector<OptionField>& RuleFields() {
  static const auto* const fields = new std::vector<OptionField>{
      SLUICE_RULE_FIELD(name),      SLUICE_RULE_FIELD(lr),         SLUICE_RULE_FIELD(momentum),
      SLUICE_RULE_FIELD(nesterov),  SLUICE_RULE_FIELD(beta1),      SLUICE_RULE_FIELD(beta2),
      SLUICE_RULE_FIELD(eps),       SLUICE_RULE_FIELD(alpha),      SLUICE_RULE_FIELD(weight_decay),
      SLUICE_RULE_FIELD(clip_norm), SLUICE_RULE_FIELD(clip_value), SLUICE_RULE_FIELD(location)};
  return *fields;
}

#undef SLUICE_FIELD
#undef SLUICE_RULE_FIELD

}  // namespace

std::string FormatOptions(const SurvivalOptions& options) {
  std::string text;
  const auto append = [&](const std::vector<OptionField>& fields) {
    for (const OptionField& field : fields) {
      absl::StrAppend(&text, "option ", field.name, " ", field.write(options), "\n");
    }
  };
  append(JobFields());
  if (options.rule.has_value()) append(RuleFields());
  return text;
}

absl::Status SetOption(absl::string_view name, absl::string_view value, SurvivalOptions* options) {
  for (const auto* const fields : {&JobFields(), &RuleFields()}) {
    for (const OptionField& field : *fields) {
      if (name != field.name) continue;
      if (field.read(value, options)) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("option ", name, " cannot have the value \"", value, "\""));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no option \"", name, "\""));
}

}  // namespace sluice
