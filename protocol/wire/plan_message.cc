// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/plan_message.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "compress/codec_spec.h"

namespace sluice::protocol {
namespace {

constexpr int kEntriesMax = 100'000;
constexpr size_t kCodecTextMax = 256;

absl::Status Refuse(uint64_t id, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("compression plan ", id, " ", what));
}

absl::StatusOr<PlanEntry> EntryFromProto(uint64_t id, const v1::CompressionPlan::Entry& message) {
  if (message.uplink().empty() == message.downlink().empty()) {
    return Refuse(id, "has an entry that is not of one direction");
  }
  PlanEntry entry;
  const bool up = message.downlink().empty();
  entry.direction = up ? Direction::kUplink : Direction::kDownlink;
  const std::string& text = up ? message.uplink() : message.downlink();
  if (text.size() > kCodecTextMax) {
    return Refuse(id, absl::StrCat("names a codec in ", text.size(), " characters"));
  }
  absl::StatusOr<compress::CodecSpec> codec = compress::ParseCodecSpec(text);
  if (!codec.ok()) return Refuse(id, absl::StrCat("names a codec: ", codec.status().message()));
  entry.codec = *codec;
  entry.tensors = {message.tensors().begin(), message.tensors().end()};
  entry.ranks = {message.ranks().begin(), message.ranks().end()};
  return entry;
}

}  // namespace

void PlanToProto(const CompressionPlan& plan, v1::CompressionPlan* message) {
  message->set_id(plan.id);
  message->set_effective_step(plan.effective_step);
  message->set_reason(ValidText(plan.reason));
  if (plan.momentum.has_value()) message->set_momentum(*plan.momentum);
  for (const PlanEntry& entry : plan.entries) {
    v1::CompressionPlan::Entry* const out = message->add_entries();
    (entry.direction == Direction::kUplink ? out->mutable_uplink() : out->mutable_downlink())
        ->assign(ToString(entry.codec));
    out->mutable_tensors()->Add(entry.tensors.begin(), entry.tensors.end());
    out->mutable_ranks()->Add(entry.ranks.begin(), entry.ranks.end());
  }
}

absl::StatusOr<CompressionPlan> PlanFromProto(const v1::CompressionPlan& message) {
  if (message.entries_size() > kEntriesMax) {
    return Refuse(message.id(), absl::StrCat("has ", message.entries_size(), " entries"));
  }
  CompressionPlan plan;
  plan.id = message.id();
  plan.effective_step = message.effective_step();
  plan.reason = message.reason();
  if (message.has_momentum()) plan.momentum = message.momentum();
  for (const v1::CompressionPlan::Entry& entry : message.entries()) {
    absl::StatusOr<PlanEntry> read = EntryFromProto(plan.id, entry);
    if (!read.ok()) return read.status();
    plan.entries.push_back(*std::move(read));
  }
  return plan;
}

}  // namespace sluice::protocol
