#include "job/support.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec_table.h"
#include "compress/feedback/difference.h"
#include "protocol/compression_plan.h"

namespace sluice::job {
namespace {

constexpr absl::string_view kNeedsServerRule =
    "a step of async or ssp closes at every contribution, so there is no mean for the workers' "
    "optimizers to apply; it needs a rule on the shards";

constexpr absl::string_view kElasticNotYet =
    "elastic is built for mode sync alone so far; use fixed";

constexpr ModeRow kModeRows[] = {
    {"sync", "average", "fixed", Support::kBuilt, "", ""},
    {"sync", "average", "elastic", Support::kBuilt, "", ""},
    {"sync", "", "fixed", Support::kBuilt, "", ""},
    {"sync", "", "elastic", Support::kBuilt, "", ""},
    {"async", "average", "", Support::kImpossible, "mode", kNeedsServerRule},
    {"ssp", "average", "", Support::kImpossible, "mode", kNeedsServerRule},
    {"async", "", "elastic", Support::kNotYet, "membership", kElasticNotYet},
    {"async", "", "fixed", Support::kBuilt, "", ""},
    {"ssp", "", "elastic", Support::kNotYet, "membership", kElasticNotYet},
    {"ssp", "", "fixed", Support::kBuilt, "", ""},
    {"local_sgd", "outer", "fixed", Support::kBuilt, "", ""},
    {"local_sgd", "outer", "elastic", Support::kNotYet, "membership", kElasticNotYet},
    {"local_sgd", "", "", Support::kImpossible, "optimizer.on",
     "in local_sgd workers do steps of their own with the optimizer; the shards' is "
     "outer_optimizer"},
};

constexpr ModeRow kNoModeRow = {
    "",     "",
    "",     Support::kImpossible,
    "mode", "there is no such combination of mode, update rule and membership"};

bool Fits(const ModeRow& row, const SupportQuery& query) {
  return (row.mode.empty() || row.mode == query.mode) &&
         (row.rule.empty() || row.rule == query.rule) &&
         (row.membership.empty() || row.membership == query.membership);
}

const ModeRow& FindModeRow(const SupportQuery& query) {
  for (const ModeRow& row : kModeRows) {
    if (Fits(row, query)) return row;
  }
  return kNoModeRow;
}

bool SendsWeights(absl::string_view mode, absl::string_view rule) {
  return mode == "local_sgd" || rule == "accumulate";
}

// What codecs and compensators ask of modes and rules. One sentence each: they are footnotes too.
constexpr absl::string_view kVoteNeedsMany =
    "a vote needs all workers of a step; async and ssp close at every contribution";
constexpr absl::string_view kVoteHasNoSize =
    "a vote has no size; changes of weights need one (local_sgd, accumulate)";
constexpr absl::string_view kDifferencesNeedSteps =
    "the receiver adds up all workers' differences step by step; async and ssp have no such steps";
constexpr absl::string_view kExponentsNeedSteps =
    "all workers take their exponents from the last step's mean; async and ssp have no such steps";
constexpr absl::string_view kMemoryNeedsSteps =
    "its receiver remembers what each worker sent; after a rollback in async or ssp a worker says "
    "other things, which the shards have as repeats";
constexpr absl::string_view kMomentumTwice =
    "the shards' rule has a momentum of its own, which would act twice";
constexpr absl::string_view kWeightsNoMomentum =
    "workers send changes of weights, which hold their momentum already (local_sgd, accumulate)";

absl::string_view ModeRefusal(const compress::CodecSpec& codec, absl::string_view mode,
                              absl::string_view rule) {
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
    "with a `quorum` a step may go without a worker, and another have two of its contributions; "
    "the "
    "receiver remembers each worker's from step to step";

constexpr absl::string_view kElasticBreaksMemory =
    "with membership `elastic` another worker may take a rank, and begins with nothing; the "
    "receiver "
    "remembers each rank's from step to step";

absl::string_view AttendanceRefusal(const compress::CodecSpec& codec, bool quorum,
                                    absl::string_view membership) {
  const bool remembers =
      compress::FindCodec(codec.codec).aggregation == compress::Aggregation::kPerSender ||
      compress::HasMemory(codec.compensator.id);
  if (!remembers) return "";
  if (quorum) return kQuorumBreaksMemory;
  return membership == "elastic" ? kElasticBreaksMemory : "";
}

constexpr absl::string_view kPlansChangeCodecs =
    "a job with plans of compression (control.policy) has codecs whose frames add up whatever they "
    "are, and that keep nothing but a residual: none, fp16, bf16, int8, int4, int2, sign, onebit, "
    "ternary, eden, topk and topk_exact, with error feedback or /noef";

SupportAnswer PlansAnswer(const SupportQuery& query) {
  if (!query.plans) return {};
  if (!protocol::MayChange(query.codec)) return {Support::kNotYet, "", kPlansChangeCodecs};
  return {};
}

constexpr absl::string_view kRelaysNeedSync =
    "relays pass on means of steps that all workers take together and apply themselves: mode sync "
    "with optimizer.on workers; others are not built yet";
constexpr absl::string_view kRelaysNeedAll =
    "a relay waits for all of its workers, so neither a `quorum` nor membership `elastic` goes "
    "with "
    "relays yet";
constexpr absl::string_view kRelaysNoPlans =
    "plans of compression (control.policy) do not reach through relays yet; use policy fixed";
constexpr absl::string_view kRelaysAddUp =
    "a relay sends the sum of what came in, and bundles are cut alike on both sides of it: the "
    "codecs of a job with relays are those whose frames add up whatever they are, and that keep "
    "nothing but a residual: none, fp16, bf16, int8, int4, int2, sign, onebit, ternary, eden, topk "
    "and topk_exact, with error feedback or /noef";

// Numbers sentences in the order in which they are first asked for.
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

// Rows are codecs, and options that change what goes with them.
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
  std::string table = "| mode | rule | membership | |\n|---|---|---|---|\n";
  const auto or_any = [](absl::string_view text) {
    return text.empty() ? std::string("any") : absl::StrCat("`", text, "`");
  };
  for (const ModeRow& row : kModeRows) {
    const absl::string_view state = row.support == Support::kBuilt        ? "runs"
                                    : row.support == Support::kImpossible ? "impossible"
                                                                          : "not yet";
    absl::StrAppend(&table, "| `", row.mode, "` | ", or_any(row.rule), " | ",
                    or_any(row.membership), " | ", state,
                    row.reason.empty() ? "" : absl::StrCat(" (", notes->Number(row.reason), ")"),
                    " |\n");
  }
  return table;
}

std::string ModeRefusals(Footnotes* notes) {
  std::string text = "Codecs and compensators that do not go with every mode and rule: `signsgd` (";
  // One by one: arguments of a call are evaluated in any order, and so would the notes be numbered.
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

bool InLockstep(absl::string_view mode) { return mode == "sync" || mode == "local_sgd"; }

absl::string_view RuleOf(absl::string_view mode, absl::string_view on,
                         absl::string_view optimizer) {
  if (mode == "local_sgd") return on == "workers" ? "outer" : optimizer;
  if (on == "shards") return optimizer;
  return mode == "async" || mode == "ssp" ? "accumulate" : "average";
}

absl::Span<const ModeRow> ModeRows() { return kModeRows; }

SupportAnswer FindSupport(const SupportQuery& query) {
  const ModeRow& row = FindModeRow(query);
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
  if (query.relays && !protocol::MayChange(query.codec))
    return {Support::kNotYet, "", kRelaysAddUp};
  return PlansAnswer(query);
}

absl::string_view RelaysRefusal(const SupportQuery& query) {
  if (query.mode != "sync" || query.rule != "average") return kRelaysNeedSync;
  if (query.quorum || query.membership != "fixed") return kRelaysNeedAll;
  return query.plans ? kRelaysNoPlans : "";
}

std::string SupportTableMarkdown() {
  Footnotes notes;
  std::string text = CompensatorTable(&notes);
  absl::StrAppend(&text, "\n", ModeTable(&notes), "\n");
  absl::StrAppend(&text, ModeRefusals(&notes), "\n");
  return text + notes.List();
}

}  // namespace sluice::job
