// SPDX-License-Identifier: Apache-2.0
#include "job/momentum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/power.h"
#include "compress/codec_table.h"
#include "job/job_spec.h"

namespace sluice::job {
namespace {

constexpr double kSparseLow = 0.10;
constexpr double kSparseHigh = 0.50;
constexpr double kShareMin = 0.01;
// These values allow a momentum of 0.5 at a mean staleness of 4.5 (range 0 to 9), which did well in
// measurements.
constexpr double kFreshMomentum = 0.9;
constexpr double kStalenessUnit = 1.125;

// True if the momentum is a moving average of gradients, so that a step's length does not depend on
// it.
bool Averages(const OptimizerSpec& optimizer) {
  return optimizer.name == "adam" || optimizer.name == "adamw" || optimizer.name == "muon";
}

// DIANA is excluded: its memory lags, but the published values are always right on average.
bool HoldsBack(const compress::CodecSpec& codec) {
  // With a sketch, the shard holds values back.
  if (compress::FindCodec(codec.codec).aggregation == compress::Aggregation::kSketch) return true;
  return codec.error_feedback() && codec.compensator.id != compress::CompensatorId::kDiana;
}

// Returns the codecs with which the job's workers and shards begin, each with a description of its
// use.
std::vector<std::pair<std::string, compress::CodecSpec>> CodecsOf(const JobSpec& spec) {
  std::vector<std::pair<std::string, compress::CodecSpec>> codecs = {
      {"up", spec.exchange.compression.uplink}, {"down", spec.exchange.compression.downlink}};
  for (const protocol::CompressionOverride& entry : spec.exchange.compression.overrides) {
    if (entry.uplink) codecs.emplace_back(absl::StrCat("up in ", entry.tensors), *entry.uplink);
    if (entry.downlink) {
      codecs.emplace_back(absl::StrCat("down in ", entry.tensors), *entry.downlink);
    }
  }
  if (spec.relays.enabled()) codecs.emplace_back("to relays", spec.relays.uplink);
  return codecs;
}

// Returns the number of senders whose updates the shards apply one by one. The workers of a rack
// take their steps together.
uint32_t Senders(const JobSpec& spec) {
  return spec.relays.enabled() ? static_cast<uint32_t>(spec.relays.workers.size()) : spec.workers;
}

bool SendersGoOn(const JobSpec& spec) {
  return !InLockstep(spec.exchange.mode) && Senders(spec) > 1;
}

// True for a job with relays, and for its parts.
bool HasRelays(const JobSpec& spec) {
  return spec.relays.enabled() || !spec.part.weights.empty() || spec.part.rack_of > 0;
}

std::string Shown(double number) { return absl::StrFormat("%.3g", number); }

}  // namespace

double MomentumOf(const OptimizerSpec& optimizer) {
  return Averages(optimizer) ? optimizer.beta1 : optimizer.momentum;
}

absl::string_view MomentumKey(const OptimizerSpec& optimizer) {
  return Averages(optimizer) ? "beta1" : "momentum";
}

MomentumRange MomentumRangeOf(const JobSpec& spec) {
  const double base = MomentumOf(spec.optimizer);
  if (TraitsOf(spec.exchange.mode).local_steps) return {.base = base, .coded = base};
  const std::optional<double> by_hand = spec.optimizer.delayed_momentum;
  MomentumRange range = {.base = base, .coded = std::min(base, by_hand.value_or(kCodedMomentum))};
  // If the job file sets a value, that value replaces the rule.
  if (SendersGoOn(spec)) range.most = by_hand.value_or(MomentumAtStaleness(Senders(spec) - 1));
  // Plans do not change the codec inside racks, so its delay remains under every plan.
  if (HasRelays(spec) && spec.exchange.control.makes_plans()) {
    range.most = std::min(range.most, MomentumWith(spec.relays.uplink, range));
  }
  return range;
}

double MomentumWith(const compress::CodecSpec& codec, const MomentumRange& range) {
  const double least = std::min(range.base, range.coded);
  const double share =
      HoldsBack(codec) ? compress::FindCodec(codec.codec).facts.share_sent.value()(codec) : 1;
  if (share >= kSparseHigh) return range.base;
  if (share <= kSparseLow) return least;
  const double way = std::log(share / kSparseLow) / std::log(kSparseHigh / kSparseLow);
  return std::lerp(least, range.base, way);
}

double MomentumWith(absl::Span<const compress::CodecSpec> codecs,
                    absl::Span<const uint64_t> elements, const MomentumRange& range) {
  Check(codecs.size() == elements.size(), "every tensor has a codec");
  double all = 0;
  for (const uint64_t count : elements) all += static_cast<double>(count);
  double momentum = std::min(range.base, range.most);
  for (size_t i = 0; i < codecs.size(); ++i) {
    if (static_cast<double>(elements[i]) <= kShareMin * all) continue;
    momentum = std::min(momentum, MomentumWith(codecs[i], range));
  }
  return momentum;
}

double MomentumAtStaleness(double staleness) {
  return std::max(0.0, 1 - (1 - kFreshMomentum) * (1 + staleness / kStalenessUnit));
}

double JobMomentum(const JobSpec& spec, const protocol::TensorTable& table,
                   const protocol::CompressionPlan* plan) {
  const MomentumRange range = MomentumRangeOf(spec);
  if (plan != nullptr) {
    return plan->momentum ? double{*plan->momentum} : std::min(range.base, range.most);
  }
  std::vector<protocol::CompressionSpec> compressions = {spec.exchange.compression};
  if (HasRelays(spec)) {
    compressions.push_back(spec.exchange.compression);
    compressions.back().uplink = spec.relays.uplink;
    compressions.back().overrides.clear();
  }
  const size_t trained = protocol::TrainedTensors(table);
  std::vector<uint64_t> elements(trained);
  for (size_t i = 0; i < trained; ++i) elements[i] = static_cast<uint64_t>(table[i].elements());
  double momentum = std::min(range.base, range.most);
  for (const protocol::CompressionSpec& compression : compressions) {
    for (const protocol::Direction direction :
         {protocol::Direction::kUplink, protocol::Direction::kDownlink}) {
      std::vector<compress::CodecSpec> codecs;
      for (size_t i = 0; i < trained; ++i) {
        codecs.push_back(protocol::SpecForTensor(compression, table[i], direction));
      }
      momentum = std::min(momentum, MomentumWith(codecs, elements, range));
    }
  }
  return momentum;
}

std::optional<double> ShardMomentum(const JobSpec& spec, const protocol::TensorTable& table) {
  if (TraitsOf(spec.exchange.mode).local_steps ||
      spec.optimizer.location != UpdateLocation::kShards)
    return std::nullopt;
  return JobMomentum(spec, table);
}

double RateFactor(const OptimizerSpec& optimizer, double momentum) {
  return Averages(optimizer) ? 1 : (1 - momentum) / (1 - optimizer.momentum);
}

double BufferFactor(const OptimizerSpec& optimizer, uint64_t updates, double before, double now) {
  Check(before >= 0 && before < 1 && now >= 0 && now < 1, "a momentum is in [0, 1)");
  // The factor is 1 if the buffers are still empty or the momentum does not change.
  if (updates == 0 || before == now) return 1;
  if (!Averages(optimizer)) return (1 - before) / (1 - now);
  return (1 - PowerOf(now, updates)) / (1 - PowerOf(before, updates));
}

std::string MomentumNote(const JobSpec& spec) {
  const MomentumRange range = MomentumRangeOf(spec);
  const std::string name = absl::StrCat(MomentumKey(spec.optimizer), " ");
  if (range.coded >= range.base && !SendersGoOn(spec)) return "";
  if (spec.exchange.control.makes_plans()) {
    const double most = std::min(range.base, range.most);
    const double least = std::min(range.coded, range.most);
    return absl::StrCat(name, least < most ? absl::StrCat(Shown(most), " to ") : "", Shown(least),
                        ", as plans say");
  }
  double momentum = range.base;
  std::vector<std::string> reasons;
  for (const auto& [where, codec] : CodecsOf(spec)) {
    const double wanted = MomentumWith(codec, range);
    if (wanted < range.base) reasons.push_back(absl::StrCat(ToString(codec), " ", where));
    momentum = std::min(momentum, wanted);
  }
  const double stale = std::min(momentum, range.most);
  if (range.most < range.base) {
    reasons.push_back(absl::StrCat("mode ", NameOf(spec.exchange.mode), " with ", Senders(spec),
                                   spec.relays.enabled() ? " relays" : " workers"));
  }
  if (stale >= range.base) return "";
  std::string note = absl::StrCat(name, Shown(stale), " (of ", Shown(range.base),
                                  "): ", absl::StrJoin(reasons, " and "),
                                  reasons.size() == 1 ? " delays" : " delay", " gradients");
  const double factor = RateFactor(spec.optimizer, stale);
  if (factor != 1) absl::StrAppend(&note, "; lr x ", Shown(factor));
  return note;
}

}  // namespace sluice::job
