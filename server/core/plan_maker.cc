#include "server/core/plan_maker.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// Policies count a job's steps from 0, jobs from 1.
constexpr uint64_t kFirstStep = 1;

// As its text says: what all parties read.
CodecSpec Canonical(const CodecSpec& codec) {
  const absl::StatusOr<CodecSpec> parsed = ParseCodecSpec(ToString(codec));
  Check(parsed.ok(), "a codec's text can be read");
  return *parsed;
}

// Adds what differs from `base`, one entry for each codec.
void AddEntries(Direction direction, const std::vector<uint32_t>& ranks,
                const std::vector<CodecSpec>& codecs, const std::vector<CodecSpec>& base,
                std::vector<PlanEntry>* entries) {
  std::map<std::string, PlanEntry> by_codec;
  for (uint32_t tensor = 0; tensor < codecs.size(); ++tensor) {
    if (codecs[tensor] == base[tensor]) continue;
    PlanEntry& entry = by_codec[ToString(codecs[tensor])];
    entry.codec = Canonical(codecs[tensor]);
    entry.tensors.push_back(tensor);
  }
  for (auto& [text, entry] : by_codec) {
    entry.direction = direction;
    entry.ranks = ranks;
    entries->push_back(std::move(entry));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlanMaker>> PlanMaker::Create(const ControlSpec& control,
                                                             const CompressionSpec& compression,
                                                             const TensorTable& table,
                                                             uint32_t ranks) {
  if (!control.makes_plans()) return std::unique_ptr<PlanMaker>();
  std::vector<ControlledTensor> tensors;
  BaseCoding base;
  for (uint32_t tensor = 0; tensor < TrainedTensors(table); ++tensor) {
    base.up.push_back(SpecForTensor(compression, table[tensor], Direction::kUplink));
    base.down.push_back(SpecForTensor(compression, table[tensor], Direction::kDownlink));
    tensors.push_back({.elements = static_cast<uint64_t>(table[tensor].elements())});
  }
  absl::StatusOr<std::unique_ptr<Policy>> policy =
      MakeSchedulePolicy(control.schedule, base, tensors, ranks);
  if (!policy.ok()) return policy.status();
  return std::unique_ptr<PlanMaker>(
      new PlanMaker(*std::move(policy), std::move(tensors), std::move(base)));
}

PlanMaker::PlanMaker(std::unique_ptr<Policy> policy, std::vector<ControlledTensor> tensors,
                     BaseCoding base)
    : base_(std::move(base)),
      controller_(std::move(policy), std::move(tensors), {.automatic = false}) {}

PlanMaker::Plan PlanMaker::First() { return ToJob(controller_.First()); }

void PlanMaker::Resume(uint64_t id, uint64_t step) { controller_.Resume(id, step - kFirstStep); }

PlanMaker::Plan PlanMaker::Next(uint64_t step) {
  StepMeasurements measured;
  measured.step = step - kFirstStep;
  const std::optional<sluice::Plan> plan = controller_.Next(measured);
  return plan.has_value() ? ToJob(*plan) : nullptr;
}

PlanMaker::Plan PlanMaker::ToJob(const sluice::Plan& plan) const {
  auto made = std::make_shared<CompressionPlan>();
  made->id = plan.id;
  made->effective_step = plan.effective_step + kFirstStep;
  made->reason = plan.choice.reason;
  const std::vector<Coding>& up = plan.choice.up;
  const bool all_alike = std::all_of(
      up.begin(), up.end(), [&](const Coding& of_rank) { return of_rank.codecs == up[0].codecs; });
  for (uint32_t rank = 0; rank < up.size(); ++rank) {
    if (all_alike && rank > 0) break;
    AddEntries(Direction::kUplink, all_alike ? std::vector<uint32_t>() : std::vector{rank},
               up[rank].codecs, base_.up, &made->entries);
  }
  AddEntries(Direction::kDownlink, {}, plan.choice.down.codecs, base_.down, &made->entries);
  return made;
}

absl::StatusOr<PlanMaker::Plan> FirstPlan(const ControlSpec& control,
                                          const CompressionSpec& compression,
                                          const TensorTable& table, uint32_t ranks) {
  const absl::StatusOr<std::unique_ptr<PlanMaker>> maker =
      PlanMaker::Create(control, compression, table, ranks);
  if (!maker.ok()) return maker.status();
  return *maker == nullptr ? nullptr : (*maker)->First();
}

}  // namespace sluice
