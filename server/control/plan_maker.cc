// SPDX-License-Identifier: Apache-2.0
#include "server/control/plan_maker.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "protocol/compression_plan.h"
#include "server/control/accuracy.h"
#include "server/control/auto.h"
#include "server/control/bandwidth.h"
#include "server/control/codec_cpu_time.h"

namespace sluice::server {
namespace {

// Policies count the steps of a job from 0. Jobs count from 1.
constexpr uint64_t kFirstStep = 1;

// Returns the codec that all parties get when they parse this codec's text.
compress::CodecSpec Canonical(const compress::CodecSpec& codec) {
  const absl::StatusOr<compress::CodecSpec> parsed = compress::ParseCodecSpec(ToString(codec));
  Check(parsed.ok(), "a codec's text can be read");
  return *parsed;
}

// Rounds to two digits. They are enough for a person, and more digits would make the plans of two
// ranks differ without benefit. Rounds down, so that no plan exceeds its budget. Rounds the
// percentage, because specs are written in percent and 8.8 / 100 need not equal 0.088.
compress::CodecSpec Rounded(compress::CodecSpec codec) {
  if (!protocol::IsSparse(codec.codec) || !(codec.level > 0)) return codec;
  const double percent = 100 * codec.level;
  const double unit = std::pow(10, std::floor(std::log10(percent)) - 1);
  double rounded = percent;
  const std::string text = absl::StrFormat("%.3g", unit * std::floor(percent / unit * (1 + 1e-9)));
  if (absl::SimpleAtod(text, &rounded) && rounded > 0) codec.level = rounded / 100;
  return codec;
}

// Returns the tensors whose codec differs from `base`, grouped by the codec's text.
std::map<std::string, protocol::PlanEntry> Changes(const std::vector<compress::CodecSpec>& codecs,
                                                   const std::vector<compress::CodecSpec>& base) {
  std::map<std::string, protocol::PlanEntry> by_codec;
  for (uint32_t tensor = 0; tensor < codecs.size(); ++tensor) {
    if (codecs[tensor] == base[tensor]) continue;
    protocol::PlanEntry& entry = by_codec[ToString(codecs[tensor])];
    entry.codec = Canonical(codecs[tensor]);
    entry.tensors.push_back(tensor);
  }
  return by_codec;
}

absl::StatusOr<std::unique_ptr<Policy>> MakeAuto(const job::ControlSpec& control,
                                                 const protocol::CompressionSpec& compression,
                                                 const std::vector<ControlledTensor>& tensors,
                                                 uint32_t ranks, double shard_share,
                                                 bool lockstep) {
  uint64_t elements = 0;
  for (const ControlledTensor& tensor : tensors)
    elements += tensor.compressed ? tensor.elements : 0;
  const auto shard_elements = static_cast<uint64_t>(shard_share * static_cast<double>(elements));
  AutoOptions options{.ranks = ranks,
                      .tensors = tensors,
                      .first = compression.uplink,
                      .overlap = control.overlap,
                      .lockstep = lockstep};
  for (const compress::CodecSpec& candidate : control.candidates) {
    absl::StatusOr<CodecCpuTime> cost = UsualCost(candidate, elements, shard_elements, ranks);
    if (!cost.ok()) return cost.status();
    options.choices.push_back(*std::move(cost));
  }
  return MakeAutoPolicy(options);
}

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const job::ControlSpec& control,
                                                   const protocol::CompressionSpec& compression,
                                                   const BaseCoding& base,
                                                   const std::vector<ControlledTensor>& tensors,
                                                   uint32_t ranks, double shard_share,
                                                   bool lockstep) {
  if (control.policy == job::PolicyKind::kSchedule) {
    return MakeSchedulePolicy(control.schedule, base, tensors, ranks);
  }
  if (!control.measures()) {
    return absl::InvalidArgumentError(
        absl::StrCat("control.policy: there is no ", NameOf(control.policy)));
  }
  if (std::none_of(tensors.begin(), tensors.end(),
                   [](const ControlledTensor& tensor) { return tensor.compressed; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("control.policy ", NameOf(control.policy),
                     " has nothing to choose for: every tensor is below "
                     "compression.min_elements or has a codec of its own in "
                     "compression.overrides"));
  }
  if (control.policy == job::PolicyKind::kAuto)
    return MakeAuto(control, compression, tensors, ranks, shard_share, lockstep);
  if (control.policy == job::PolicyKind::kAccuracy) {
    return MakeAccuracyPolicy({.ranks = ranks,
                               .tensors = tensors,
                               .sparse = compression.uplink,
                               .reference = control.reference,
                               .tolerance = control.tolerance});
  }
  return MakeBandwidthPolicy({.ranks = ranks,
                              .tensors = tensors,
                              .candidates = control.candidates,
                              .first = compression.uplink,
                              .step_time_s = control.step_time_s,
                              .overlap = control.overlap});
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlanMaker>> PlanMaker::Create(
    const job::ControlSpec& control, const protocol::CompressionSpec& compression,
    const protocol::TensorTable& table, uint32_t ranks, const job::MomentumRange& momentum,
    double shard_share, bool lockstep) {
  if (!control.makes_plans()) return std::unique_ptr<PlanMaker>();
  std::vector<ControlledTensor> tensors;
  BaseCoding base;
  for (uint32_t tensor = 0; tensor < protocol::TrainedTensors(table); ++tensor) {
    base.up.push_back(
        protocol::SpecForTensor(compression, table[tensor], protocol::Direction::kUplink));
    base.down.push_back(
        protocol::SpecForTensor(compression, table[tensor], protocol::Direction::kDownlink));
    // A policy's codecs do not apply to small tensors or to tensors with their own codec.
    const auto elements = static_cast<uint64_t>(table[tensor].elements());
    tensors.push_back({.elements = elements,
                       .compressed = elements >= compression.min_elements &&
                                     base.up.back() == compression.uplink &&
                                     base.down.back() == compression.downlink});
  }
  absl::StatusOr<std::unique_ptr<Policy>> policy =
      MakePolicy(control, compression, base, tensors, ranks, shard_share, lockstep);
  if (!policy.ok()) return policy.status();
  return std::unique_ptr<PlanMaker>(
      new PlanMaker(control, *std::move(policy), std::move(tensors), std::move(base), momentum));
}

PlanMaker::PlanMaker(const job::ControlSpec& control, std::unique_ptr<Policy> policy,
                     std::vector<ControlledTensor> tensors, BaseCoding base,
                     const job::MomentumRange& momentum)
    : measures_(control.measures()),
      densities_(control.policy == job::PolicyKind::kAccuracy),
      tensors_(tensors),
      base_(std::move(base)),
      momentum_(momentum),
      controller_(std::move(policy), std::move(tensors), momentum) {}

PlanMaker::Plan PlanMaker::First() {
  PolicyDecision plan = controller_.First();
  // Before the first measurement, all tensors are coded as in the job file.
  if (measures_) {
    plan.choice.up = {{.codecs = base_.up}};
    plan.choice.down = {.codecs = base_.down};
  }
  return ToJob(plan);
}

void PlanMaker::Resume(uint64_t id, uint64_t step) { controller_.Resume(id, step - kFirstStep); }

PlanMaker::Plan PlanMaker::Next(uint64_t step, const StepMeasurements* measured) {
  if (measures_ && measured == nullptr) return nullptr;
  StepMeasurements of_step = measured == nullptr ? StepMeasurements() : *measured;
  of_step.step = step - kFirstStep;
  const std::optional<PolicyDecision> plan = controller_.Next(of_step);
  return plan.has_value() ? ToJob(*plan) : nullptr;
}

std::vector<compress::CodecSpec> PlanMaker::Codecs(
    const Coding& coding, const std::vector<compress::CodecSpec>& base) const {
  if (!measures_) return coding.codecs;
  std::vector<compress::CodecSpec> codecs;
  for (size_t tensor = 0; tensor < base.size(); ++tensor) {
    compress::CodecSpec codec = base[tensor];
    if (tensors_[tensor].compressed && densities_) {
      if (protocol::IsSparse(codec.codec)) codec.level = Rounded(coding.codecs[tensor]).level;
    } else if (tensors_[tensor].compressed) {
      codec = Rounded(coding.codecs[tensor]);
      codec.compensator = base[tensor].compensator;
    }
    codecs.push_back(codec);
  }
  return codecs;
}

PlanMaker::Plan PlanMaker::ToJob(const PolicyDecision& plan) const {
  auto made = std::make_shared<protocol::CompressionPlan>();
  made->id = plan.id;
  made->effective_step = plan.effective_step + kFirstStep;
  made->reason = plan.choice.reason;
  // The actual coding, which includes small tensors and tensors with their own codec.
  Choice coded = plan.choice;
  for (Coding& up : coded.up) up.codecs = Codecs(up, base_.up);
  coded.down.codecs = Codecs(coded.down, base_.down);
  const double momentum = MomentumFor(coded, tensors_, momentum_);
  if (momentum < momentum_.base) made->momentum = static_cast<float>(momentum);
  // Ranks with equal changes share an entry. Entries are in the order of their lowest ranks.
  std::vector<protocol::PlanEntry> entries;
  for (uint32_t rank = 0; rank < coded.up.size(); ++rank) {
    for (auto& change : Changes(coded.up[rank].codecs, base_.up)) {
      protocol::PlanEntry& entry = change.second;
      const auto same =
          std::find_if(entries.begin(), entries.end(), [&](const protocol::PlanEntry& of) {
            return of.codec == entry.codec && of.tensors == entry.tensors;
          });
      if (same != entries.end()) {
        same->ranks.push_back(rank);
      } else {
        entry.ranks = {rank};
        entries.push_back(std::move(entry));
      }
    }
  }
  for (protocol::PlanEntry& entry : entries) {
    if (entry.ranks.size() == coded.up.size()) entry.ranks.clear();
    made->entries.push_back(std::move(entry));
  }
  for (auto& [text, entry] : Changes(coded.down.codecs, base_.down)) {
    entry.direction = protocol::Direction::kDownlink;
    made->entries.push_back(std::move(entry));
  }
  return made;
}

PlanMaker::Plan PlanInRack(const protocol::CompressionPlan& plan) {
  auto in_rack = std::make_shared<protocol::CompressionPlan>(plan);
  in_rack->entries.clear();
  return in_rack;
}

absl::StatusOr<PlanMaker::Plan> FirstPlan(const job::ControlSpec& control,
                                          const protocol::CompressionSpec& compression,
                                          const protocol::TensorTable& table, uint32_t ranks,
                                          const job::MomentumRange& momentum) {
  const absl::StatusOr<std::unique_ptr<PlanMaker>> maker =
      PlanMaker::Create(control, compression, table, ranks, momentum);
  if (!maker.ok()) return maker.status();
  return *maker == nullptr ? nullptr : (*maker)->First();
}

}  // namespace sluice::server
