// SPDX-License-Identifier: Apache-2.0
#include "protocol/compression_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compress/codec_table.h"

namespace sluice::protocol {
namespace {

constexpr size_t kReasonMax = 1000;
constexpr size_t kEntriesMax = 100'000;
// A history holds the plan in force, the previous plan, and one plan for each of the next two
// steps.
constexpr size_t kKnownMax = 4;

bool IsAscending(const std::vector<uint32_t>& numbers) {
  return std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) ==
         numbers.end();
}

absl::Status CheckEntry(const PlanEntry& entry, const CompressionSpec& compression,
                        const TensorTable& table) {
  const auto refuse = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("an entry ", what));
  };
  if (!MayChange(entry.codec)) {
    return refuse(
        absl::StrCat("has the codec ", ToString(entry.codec), ", which no plan can have"));
  }
  if (!IsAscending(entry.tensors) || !IsAscending(entry.ranks)) {
    return refuse("lists tensors or ranks out of order");
  }
  if (entry.direction == Direction::kDownlink && !entry.ranks.empty()) {
    return refuse("names ranks for results, which are the same for all");
  }
  for (const uint32_t tensor : entry.tensors) {
    if (tensor >= TrainedTensors(table)) {
      return refuse(
          absl::StrCat("is for tensor ", tensor, ", and the job trains ", TrainedTensors(table)));
    }
    if (MayChange(SpecForTensor(compression, table[tensor], entry.direction))) continue;
    return refuse(absl::StrCat("is for ", table[tensor].name, ", whose codec cannot change"));
  }
  return absl::OkStatus();
}

}  // namespace

bool MayChange(const compress::CodecSpec& codec) {
  if (codec.compensator.id != compress::CompensatorId::kErrorFeedback &&
      codec.compensator.id != compress::CompensatorId::kNone) {
    return false;
  }
  return compress::MayChange(codec.codec);
}

bool IsSparse(compress::CodecId codec) { return compress::FindCodec(codec).facts.density_in_plans; }

absl::Status CheckPlan(const CompressionPlan& plan, const CompressionSpec& compression,
                       const TensorTable& table) {
  if (plan.id == 0 || plan.effective_step == 0) {
    return absl::InvalidArgumentError("it has no number or no first step");
  }
  if (plan.reason.size() > kReasonMax || plan.entries.size() > kEntriesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it has ", plan.entries.size(), " entries and a reason of ", plan.reason.size(), " bytes"));
  }
  // The negated condition also rejects NaN.
  if (plan.momentum.has_value() && !(*plan.momentum >= 0 && *plan.momentum < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has a momentum of ", *plan.momentum, "; one is at least 0 and below 1"));
  }
  for (const PlanEntry& entry : plan.entries) {
    absl::Status fits = CheckEntry(entry, compression, table);
    if (!fits.ok()) return fits;
  }
  return absl::OkStatus();
}

std::vector<compress::CodecSpec> SpecsUnder(const CompressionPlan* plan, Direction direction,
                                            uint32_t rank,
                                            absl::Span<const compress::ChunkConfig> chunks) {
  // New codec of each changed tensor, by tensor.
  std::map<uint32_t, const compress::CodecSpec*> changed;
  if (plan != nullptr) {
    for (const PlanEntry& entry : plan->entries) {
      if (entry.direction != direction) continue;
      if (!entry.ranks.empty() &&
          !std::binary_search(entry.ranks.begin(), entry.ranks.end(), rank)) {
        continue;
      }
      for (const uint32_t tensor : entry.tensors) changed[tensor] = &entry.codec;
    }
  }
  std::vector<compress::CodecSpec> specs;
  specs.reserve(chunks.size());
  for (const compress::ChunkConfig& chunk : chunks) {
    const auto found = changed.find(chunk.tensor);
    specs.push_back(found == changed.end() ? chunk.spec : *found->second);
    specs.back().compensator = chunk.spec.compensator;
  }
  return specs;
}

std::string Summary(const CompressionPlan& plan) {
  std::vector<std::string> parts;
  for (const PlanEntry& entry : plan.entries) {
    parts.push_back(absl::StrCat(
        ToString(entry.codec), entry.direction == Direction::kUplink ? " up" : " down", " in ",
        entry.tensors.size(), entry.tensors.size() == 1 ? " tensor" : " tensors",
        entry.ranks.empty() ? "" : absl::StrCat(" of rank ", absl::StrJoin(entry.ranks, ", "))));
    constexpr size_t kPartsShown = 8;
    if (parts.size() == kPartsShown && plan.entries.size() > kPartsShown) {
      parts.push_back(absl::StrCat(plan.entries.size() - kPartsShown, " more"));
      break;
    }
  }
  if (parts.empty()) parts.emplace_back("as the job file says");
  if (plan.momentum.has_value()) parts.push_back(absl::StrFormat("momentum %.3g", *plan.momentum));
  return absl::StrJoin(parts, "; ");
}

absl::StatusOr<PlanHistory> PlanHistory::Of(absl::Span<const CompressionPlan> plans,
                                            const CompressionSpec& compression,
                                            const TensorTable& table) {
  PlanHistory book;
  for (const CompressionPlan& plan : plans) {
    absl::Status fits = CheckPlan(plan, compression, table);
    if (fits.ok()) fits = book.Learn(std::make_shared<const CompressionPlan>(plan));
    if (!fits.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("compression plan ", plan.id, " is invalid: ", fits.message()));
    }
  }
  return book;
}

std::vector<CompressionPlan> PlanHistory::Copies() const {
  std::vector<CompressionPlan> copies;
  for (const Plan& plan : plans_) copies.push_back(*plan);
  return copies;
}

absl::Status PlanHistory::Learn(Plan plan) {
  const auto contradicts = [&](const CompressionPlan& known) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", plan->id, " from step ", plan->effective_step, " contradicts plan ",
                     known.id, " from step ", known.effective_step, ", which is known"));
  };
  for (const Plan& known : plans_) {
    if (known->id != plan->id && known->effective_step != plan->effective_step) continue;
    return *known == *plan ? absl::OkStatus() : contradicts(*known);
  }
  if (!plans_.empty()) {
    if (plan->effective_step < plans_.front()->effective_step) return absl::OkStatus();
    const CompressionPlan& last = *plans_.back();
    if (plan->id < last.id || plan->effective_step < last.effective_step) return contradicts(last);
  }
  if (plans_.size() == kKnownMax) return contradicts(*plans_.back());
  plans_.push_back(std::move(plan));
  return absl::OkStatus();
}

PlanHistory::Plan PlanHistory::At(uint64_t step) const {
  Plan found;
  for (const Plan& plan : plans_) {
    if (plan->effective_step <= step) found = plan;
  }
  return found;
}

PlanHistory::Plan PlanHistory::Beginning(uint64_t step) const {
  for (const Plan& plan : plans_) {
    if (plan->effective_step == step) return plan;
  }
  return nullptr;
}

void PlanHistory::ForgetBefore(uint64_t step) {
  while (plans_.size() > 1 && plans_[1]->effective_step <= step) plans_.erase(plans_.begin());
}

}  // namespace sluice::protocol
