// SPDX-License-Identifier: Apache-2.0
#include "job/support.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/feedback/difference.h"
#include "protocol/compression_plan.h"

namespace sluice::job {
namespace {

const ModeCombination& FindCombination(const SupportQuery& query) {
  const absl::Span<const ModeCombination> rows = TraitsOf(query.mode).combinations;
  for (const ModeCombination& row : rows) {
    if (row.rule.empty() || row.rule == query.rule) return row;
  }
  Check(false, "the rows of a mode match every rule");
  return rows.front();
}

bool SendsWeights(Mode mode, absl::string_view rule) {
  return TraitsOf(mode).local_steps || rule == "accumulate";
}

// Reasons why a codec or compensator does not work with a mode or rule. Each is one sentence,
// because it also serves as a footnote.
constexpr absl::string_view kVoteNeedsMany =
    "a vote needs all workers of a step; asynchronous modes close at every contribution";
constexpr absl::string_view kVoteHasNoSize =
    "a vote has no magnitude; weight changes need one (local steps, accumulate)";
constexpr absl::string_view kDifferencesNeedSteps =
    "the receiver adds up all workers' differences step by step; asynchronous modes have no such "
    "steps";
constexpr absl::string_view kExponentsNeedSteps =
    "all workers take their exponents from the last step's mean; asynchronous modes have no such "
    "steps";
constexpr absl::string_view kMemoryNeedsSteps =
    "its receiver remembers each worker's contributions; after a rollback in an asynchronous mode "
    "a worker "
    "sends different ones, which the shards treat as repeats";
constexpr absl::string_view kMomentumTwice =
    "the shards' rule has its own momentum, which would act twice";
constexpr absl::string_view kWeightsNoMomentum =
    "workers send weight changes, which already contain their momentum (local steps, accumulate)";

absl::string_view ModeRefusal(const compress::CodecSpec& codec, Mode mode, absl::string_view rule) {
  if (compress::FindCodec(codec.codec).aggregation == compress::Aggregation::kVote) {
    if (!InLockstep(mode)) return kVoteNeedsMany;
    if (SendsWeights(mode, rule)) return kVoteHasNoSize;
  }
  if (!InLockstep(mode) && codec.codec == compress::CodecId::kIntSum) return kExponentsNeedSteps;
  if (!InLockstep(mode) &&
      compress::FindCodec(codec.codec).aggregation == compress::Aggregation::kPerSender) {
    return kMemoryNeedsSteps;
  }
  switch (codec.compensator.id) {
    case compress::CompensatorId::kErrorFeedback:
    case compress::CompensatorId::kNone:
      break;
    case compress::CompensatorId::kEf21:
    case compress::CompensatorId::kDiana:
      if (!InLockstep(mode)) return kDifferencesNeedSteps;
      break;
    case compress::CompensatorId::kDgc:
      if (SendsWeights(mode, rule)) return kWeightsNoMomentum;
      if (rule != "average" && rule != "sgd") return kMomentumTwice;
      break;
  }
  return "";
}

constexpr absl::string_view kQuorumBreaksMemory =
    "with a `quorum` a step may have no contribution from a worker, and another step two; the "
    "receiver remembers each worker's from step to step";

constexpr absl::string_view kElasticBreaksMemory =
    "with membership `elastic` another worker may take a rank and begins without state; the "
    "receiver remembers each rank's from step to step";

absl::string_view AttendanceRefusal(const compress::CodecSpec& codec, bool quorum,
                                    Membership membership) {
  const bool remembers =
      compress::FindCodec(codec.codec).aggregation == compress::Aggregation::kPerSender ||
      compress::HasMemory(codec.compensator.id);
  if (!remembers) return "";
  if (quorum) return kQuorumBreaksMemory;
  return membership == Membership::kElastic ? kElasticBreaksMemory : "";
}

// Completes a reason that ends with "needs" or "need".
std::string NeedsAddableFrames(absl::string_view who) {
  return absl::StrCat(who,
                      " codecs whose frames can be added to each other and that keep no state "
                      "except a residual: ",
                      compress::CodecsOfPlans(), ", with error feedback or /noef");
}

absl::string_view PlansChangeCodecs() {
  static const auto* const reason =
      new std::string(NeedsAddableFrames("a job with compression plans (control.policy) needs"));
  return *reason;
}

SupportAnswer PlansAnswer(const SupportQuery& query) {
  if (!query.plans) return {};
  if (!protocol::MayChange(query.codec)) return {Support::kImpossible, "", PlansChangeCodecs()};
  return {};
}

absl::string_view GuardComparesFrames() {
  static const auto* const reason = new std::string(
      NeedsAddableFrames("a guard decodes each contribution alone and may scale it, so it needs"));
  return *reason;
}

absl::string_view MergingScalesFrames() {
  static const auto* const reason = new std::string(NeedsAddableFrames(
      "`merge_weights`, `merge_over`, `merge_method` and `late_decay` decode each contribution "
      "alone and scale it, so they need"));
  return *reason;
}

constexpr absl::string_view kRelaysNeedAll =
    "a relay forwards one sum of all its workers for each step, so a step cannot close without a "
    "straggler and a rack's workers cannot change; relays exclude `quorum` and membership "
    "`elastic`";
absl::string_view RelaysAddUp() {
  static const auto* const reason = new std::string(NeedsAddableFrames(
      "a relay sends the sum of its workers' contributions, and bundles are the same on both sides "
      "of it: a job with relays needs"));
  return *reason;
}

// Numbers sentences in the order of their first use.
class Footnotes {
 public:
  size_t Number(absl::string_view text) {
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i] == text) return i + 1;
    }
    texts_.push_back(text);
    return texts_.size();
  }
  std::string List() const {
    std::string list;
    for (size_t i = 0; i < texts_.size(); ++i) {
      absl::StrAppend(&list, i + 1, ". ", texts_[i], ".\n");
    }
    return list;
  }

 private:
  std::vector<absl::string_view> texts_;
};

// Returns the table of compensators. It has a row for each codec, and for each option that changes
// which compensators are possible.
std::string CompensatorTable(Footnotes* notes) {
  std::string header = "| codec |";
  std::string rule = "|---|";
  for (const compress::CompensatorId id : compress::Compensators()) {
    absl::StrAppend(&header, " /", compress::CompensatorName(id), " |");
    absl::StrAppend(&rule, "---|");
  }
  std::string table = absl::StrCat(header, " downlink |\n", rule, "---|\n");
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    for (const uint32_t options :
         {uint32_t{0}, uint32_t{compress::kStochastic}, uint32_t{compress::kUnbiased}}) {
      if ((entry.options & options) != options) continue;
      absl::StrAppend(&table, "| `", entry.name,
                      options == compress::kStochastic ? ":sr"
                      : options == compress::kUnbiased ? ":..,unbiased"
                                                       : "",
                      "` |");
      for (const compress::CompensatorId id : compress::Compensators()) {
        const absl::string_view refusal = compress::CompensatorRefusal(entry.id, options, id);
        const bool usual = id == compress::UsualCompensator(entry.id, options);
        absl::StrAppend(&table, " ",
                        refusal.empty() ? (usual ? "**usual**" : "yes")
                                        : absl::StrCat("no (", notes->Number(refusal), ")"),
                        " |");
      }
      compress::CodecSpec spec;
      spec.codec = entry.id;
      const absl::string_view refusal = compress::DownlinkRefusal(spec);
      absl::StrAppend(&table, " ",
                      refusal.empty() ? "yes" : absl::StrCat("no (", notes->Number(refusal), ")"),
                      " |\n");
    }
  }
  return table;
}

std::string ModeTable(Footnotes* notes) {
  std::string table = "| mode | rule | |\n|---|---|---|\n";
  const auto or_any = [](absl::string_view text) {
    return text.empty() ? std::string("any") : absl::StrCat("`", text, "`");
  };
  for (const ModeTraits& mode : kModes) {
    for (const ModeCombination& row : mode.combinations.value()) {
      const absl::string_view state = row.support == Support::kBuilt ? "runs" : "impossible";
      absl::StrAppend(&table, "| `", mode.name.value(), "` | ", or_any(row.rule), " | ", state,
                      row.reason.empty() ? "" : absl::StrCat(" (", notes->Number(row.reason), ")"),
                      " |\n");
    }
  }
  return table;
}

std::string ModeRefusals(Footnotes* notes) {
  std::string text =
      "Codecs and compensators that do not work with every mode and rule: `signsgd` (";
  // The calls are separate because the evaluation order of a call's arguments is unspecified, and
  // this order determines the numbers of the footnotes.
  absl::StrAppend(&text, notes->Number(kVoteNeedsMany), ", ");
  absl::StrAppend(&text, notes->Number(kVoteHasNoSize), "), `intsum` (");
  absl::StrAppend(&text, notes->Number(kExponentsNeedSteps), "), `lsh` (");
  absl::StrAppend(&text, notes->Number(kMemoryNeedsSteps), "), `/ef21` and `/diana` (");
  absl::StrAppend(&text, notes->Number(kDifferencesNeedSteps), "), `/dgc` (");
  absl::StrAppend(&text, notes->Number(kMomentumTwice), ", ");
  absl::StrAppend(&text, notes->Number(kWeightsNoMomentum));
  absl::StrAppend(&text, "), `/ef21`, `/diana` and `lsh` (");
  absl::StrAppend(&text, notes->Number(kQuorumBreaksMemory), ", ");
  absl::StrAppend(&text, notes->Number(kElasticBreaksMemory));
  return text + "). `/dgc`, `/ef21` and `/diana` are for the uplink.\n";
}

}  // namespace

absl::string_view RuleOf(Mode mode, UpdateLocation on, absl::string_view optimizer) {
  if (on == UpdateLocation::kShards) return optimizer;
  if (TraitsOf(mode).local_steps) return "outer";
  return TraitsOf(mode).workers_update ? "average" : "accumulate";
}

SupportAnswer FindSupport(const SupportQuery& query) {
  const ModeCombination& row = FindCombination(query);
  if (row.support != Support::kBuilt) return {row.support, row.key, row.reason};
  for (const absl::string_view refusal :
       {compress::CompensatorRefusal(query.codec.codec, query.codec.options,
                                     query.codec.compensator.id),
        query.direction == protocol::Direction::kDownlink ? compress::DownlinkRefusal(query.codec)
                                                          : "",
        ModeRefusal(query.codec, query.mode, query.rule),
        AttendanceRefusal(query.codec, query.quorum, query.membership)}) {
    if (!refusal.empty()) return {Support::kImpossible, "", refusal};
  }
  const bool may_change = protocol::MayChange(query.codec);
  if (query.relays && !may_change) return {Support::kImpossible, "", RelaysAddUp()};
  if (query.guard && query.direction == protocol::Direction::kUplink && !may_change)
    return {Support::kImpossible, "", GuardComparesFrames()};
  if (query.merges && query.direction == protocol::Direction::kUplink && !may_change)
    return {Support::kImpossible, "", MergingScalesFrames()};
  return PlansAnswer(query);
}

absl::string_view RelaysRefusal(const SupportQuery& query) {
  return query.quorum || query.membership != Membership::kFixed ? kRelaysNeedAll : "";
}

std::string SupportTableMarkdown() {
  Footnotes notes;
  std::string text = CompensatorTable(&notes);
  absl::StrAppend(&text, "\n", ModeTable(&notes), "\n");
  absl::StrAppend(&text, ModeRefusals(&notes), "\n");
  return text + notes.List();
}

}  // namespace sluice::job
