// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_parameters.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/frame.h"

namespace sluice::server {
namespace {

// Names of fields in a saved chunk. The number of updates is stored as two exact floats: the low 20
// bits and the rest.
constexpr char kParameters[] = "parameters";
constexpr char kPublished[] = "published";
constexpr char kUpdates[] = "updates";
constexpr char kMomentum[] = "momentum";  // Saved only if it differs from the momentum of the rule.
constexpr uint64_t kLowUpdates = uint64_t{1} << 20;

std::string SlotName(size_t slot) { return absl::StrCat("slot-", slot); }

}  // namespace

ShardParameters::ShardParameters(UpdateRule rule, absl::Span<const uint32_t> counts)
    : rule_(std::move(rule)), momentum_(rule_.momentum()), chunks_(counts.size()) {
  for (size_t chunk = 0; chunk < counts.size(); ++chunk) chunks_[chunk].count = counts[chunk];
}

size_t ShardParameters::BytesPerElement(const UpdateRule& rule) {
  return sizeof(float) * (2 + rule.slots());
}

void ShardParameters::SetMomentum(std::optional<float> momentum) {
  momentum_ = momentum.value_or(rule_.momentum());
}

void ShardParameters::Set(size_t chunk, absl::Span<const float> values) {
  ChunkState& state = chunks_[chunk];
  Check(values.size() == state.count, "a chunk is set to as many values as it has");
  state.updates = 0;
  state.momentum = rule_.momentum();
  state.parameters.assign(values.begin(), values.end());
  state.published = state.parameters;
  state.slots.assign(rule_.slots(), std::vector<float>(state.count));
}

void ShardParameters::SetFrom(size_t chunk, absl::Span<const std::byte> frames) {
  std::vector<float> values(chunks_[chunk].count);
  compress::AddValidFrames(frames, absl::MakeSpan(values));
  Set(chunk, values);
}

void ShardParameters::Update(size_t chunk, double rate, absl::Span<const float> gradient) {
  ChunkState& state = chunks_[chunk];
  Check(state.parameters.size() == gradient.size(), "a chunk is set before it is updated");
  std::vector<absl::Span<float>> slots(state.slots.begin(), state.slots.end());
  rule_.ChangeMomentum(state.updates, state.momentum, momentum_, slots);
  state.momentum = momentum_;
  rule_.Apply(++state.updates, rate, momentum_, gradient, absl::MakeSpan(state.parameters), slots);
}

absl::Span<const float> ShardParameters::Owed(size_t chunk, std::vector<float>* scratch) const {
  const ChunkState& state = chunks_[chunk];
  scratch->resize(state.parameters.size());
  for (size_t i = 0; i < scratch->size(); ++i) {
    (*scratch)[i] = state.parameters[i] - state.published[i];
  }
  return *scratch;
}

void ShardParameters::Publish(size_t chunk, absl::Span<const std::byte> frames) {
  compress::AddValidFrames(frames, absl::MakeSpan(chunks_[chunk].published));
}

double ShardParameters::OwedEnergy() const {
  double energy = 0;
  for (const ChunkState& state : chunks_) {
    for (size_t i = 0; i < state.parameters.size(); ++i) {
      const double owed = double{state.parameters[i]} - double{state.published[i]};
      energy += owed * owed;
    }
  }
  return energy;
}

compress::SavedState ShardParameters::Save(size_t chunk) const {
  const ChunkState& state = chunks_[chunk];
  compress::SavedState saved;
  if (state.parameters.empty()) return saved;
  saved[kParameters] = state.parameters;
  saved[kPublished] = state.published;
  const uint64_t low = state.updates % kLowUpdates;
  const uint64_t high = state.updates / kLowUpdates;
  saved[kUpdates] = {static_cast<float>(low), static_cast<float>(high)};
  for (size_t slot = 0; slot < state.slots.size(); ++slot) {
    saved[SlotName(slot)] = state.slots[slot];
  }
  if (state.momentum != rule_.momentum()) saved[kMomentum] = {state.momentum};
  return saved;
}

absl::Status ShardParameters::Restore(size_t chunk, const compress::SavedState& saved) {
  ChunkState state;
  state.count = chunks_[chunk].count;
  std::vector<float> updates;
  std::vector<float> momentum;
  state.slots.resize(rule_.slots());
  std::vector<compress::StateField> fields = {{kParameters, &state.parameters, state.count},
                                              {kPublished, &state.published, state.count},
                                              {kUpdates, &updates, 2}};
  for (size_t slot = 0; slot < state.slots.size(); ++slot) {
    fields.push_back({SlotName(slot), &state.slots[slot], state.count});
  }
  const bool has_momentum = saved.contains(kMomentum);
  if (has_momentum) fields.push_back({kMomentum, &momentum, 1});
  if (absl::Status fits = compress::RestoreFields(saved, fields); !fits.ok()) return fits;
  state.momentum = has_momentum ? momentum[0] : rule_.momentum();
  // The condition is written so that NaN fails too.
  if (!(state.momentum >= 0 && state.momentum < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("it has a momentum of ", state.momentum));
  }
  for (const compress::StateField& field : fields) {
    const auto list = saved.find(field.name);
    if (state.count == 0 || list != saved.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("it has no ", field.name,
                     ": its job did not update parameters on the shards "
                     "with this optimizer"));
  }
  for (const float part : updates) {
    if (part >= 0 && part < static_cast<float>(kLowUpdates) && part == std::trunc(part)) continue;
    return absl::InvalidArgumentError(absl::StrCat("its number of updates is invalid: ", part));
  }
  if (state.count > 0) {
    state.updates =
        static_cast<uint64_t>(updates[1]) * kLowUpdates + static_cast<uint64_t>(updates[0]);
  }
  chunks_[chunk] = std::move(state);
  return absl::OkStatus();
}

}  // namespace sluice::server
