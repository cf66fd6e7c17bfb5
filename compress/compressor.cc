#include "compress/compressor.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/accumulator.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice {
namespace {

// Chunks with an equal spec share a codec and, if it takes one, a threshold.
struct Group {
  CodecSpec spec;
  std::unique_ptr<Codec> codec;
  float threshold = 0;            // 0: each chunk takes its own.
  MagnitudeHistogram magnitudes;  // Of this step.
};

struct ChunkState {
  size_t count = 0;
  size_t group = 0;
  std::unique_ptr<Compensator> compensator;
};

size_t FindOrAddGroup(const CodecSpec& spec, std::vector<Group>* groups) {
  for (size_t i = 0; i < groups->size(); ++i) {
    if ((*groups)[i].spec == spec) return i;
  }
  Group& group = groups->emplace_back();
  group.spec = spec;
  group.codec = MakeCodec(spec);
  return groups->size() - 1;
}

}  // namespace

struct Compressor::State {
  std::vector<Group> groups;
  std::vector<ChunkState> chunks;
  std::vector<bool> listed;  // Scratch of EncodeAll; all false between calls.

  absl::Status CheckGradient(size_t chunk, absl::Span<const float> gradient) const;
  absl::Status CheckList(absl::Span<const uint32_t> ids,
                         absl::Span<const absl::Span<const float>> gradients);
};

absl::Status Compressor::State::CheckGradient(size_t chunk,
                                              absl::Span<const float> gradient) const {
  if (chunk >= chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk ", chunk, " of ", chunks.size(), " does not exist"));
  }
  const ChunkState& state = chunks[chunk];
  if (gradient.size() != state.count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gradient of ", gradient.size(), " elements for chunk ", chunk, " of ", state.count));
  }
  absl::Status finite = CheckAccumulator(gradient, state.compensator->residual());
  if (finite.ok()) return finite;
  return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk, ": ", finite.message()));
}

absl::Status Compressor::State::CheckList(absl::Span<const uint32_t> ids,
                                          absl::Span<const absl::Span<const float>> gradients) {
  if (ids.size() != gradients.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ids.size(), " chunks with ", gradients.size(), " gradients"));
  }
  absl::Status status;
  size_t checked = 0;
  for (; checked < ids.size() && status.ok(); ++checked) {
    const uint32_t chunk = ids[checked];
    status = CheckGradient(chunk, gradients[checked]);
    if (!status.ok()) break;
    if (listed[chunk]) {
      status = absl::InvalidArgumentError(absl::StrCat("chunk ", chunk, " is listed twice"));
      break;
    }
    listed[chunk] = true;
  }
  for (size_t i = 0; i < checked; ++i) listed[ids[i]] = false;
  return status;
}

Compressor::Compressor(absl::Span<const ChunkConfig> chunks) : state_(std::make_unique<State>()) {
  for (const ChunkConfig& chunk : chunks) {
    const size_t group = FindOrAddGroup(chunk.spec, &state_->groups);
    Check(sluice::MaxFrameSize(*state_->groups[group].codec, chunk.count) <= kMaxFrameSize,
          "chunks are cut so that their frames stay below the limit");
    state_->chunks.push_back({.count = chunk.count,
                              .group = group,
                              .compensator = chunk.spec.error_feedback
                                                 ? MakeErrorFeedback(chunk.count)
                                                 : MakeNoFeedback(chunk.count)});
  }
  state_->listed.resize(chunks.size());
}

Compressor::~Compressor() = default;
Compressor::Compressor(Compressor&&) noexcept = default;
Compressor& Compressor::operator=(Compressor&&) noexcept = default;

size_t Compressor::chunks() const { return state_->chunks.size(); }

absl::Status Compressor::Encode(size_t chunk, absl::Span<const float> gradient,
                                std::vector<std::byte>* frame) {
  if (chunk >= state_->chunks.size()) return state_->CheckGradient(chunk, gradient);
  ChunkState& state = state_->chunks[chunk];
  Group& group = state_->groups[state.group];
  MagnitudeHistogram* const magnitudes = group.codec->density() > 0 ? &group.magnitudes : nullptr;
  absl::Status status =
      state.compensator->Encode(*group.codec, gradient, group.threshold, magnitudes, frame);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("chunk ", chunk, ": ", status.message()));
}

absl::Status Compressor::EncodeAll(absl::Span<const uint32_t> chunks,
                                   absl::Span<const absl::Span<const float>> gradients,
                                   std::vector<std::vector<std::byte>>* frames) {
  absl::Status valid = state_->CheckList(chunks, gradients);
  if (!valid.ok()) return valid;
  frames->resize(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    (*frames)[i].clear();
    absl::Status status = Encode(chunks[i], gradients[i], &(*frames)[i]);
    Check(status.ok(), status.message());
  }
  return absl::OkStatus();
}

absl::Status Compressor::TakeBack(size_t chunk, absl::Span<const std::byte> frame) {
  if (chunk >= state_->chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk ", chunk, " of ", state_->chunks.size(), " does not exist"));
  }
  return state_->chunks[chunk].compensator->TakeBack(frame);
}

void Compressor::EndStep() {
  for (Group& group : state_->groups) {
    if (group.magnitudes.total() == 0) continue;
    const float threshold = group.magnitudes.ThresholdFor(group.codec->density());
    // 0: hardly anything was not zero. What passed before such a step should pass after it, no
    // more.
    if (threshold > 0) group.threshold = threshold;
    group.magnitudes.Clear();
  }
}

size_t Compressor::MaxFrameSize(size_t chunk) const {
  const ChunkState& state = state_->chunks[chunk];
  return sluice::MaxFrameSize(*state_->groups[state.group].codec, state.count);
}

absl::Span<const float> Compressor::residual(size_t chunk) const {
  return state_->chunks[chunk].compensator->residual();
}

double Compressor::ResidualEnergy() const {
  double energy = 0;
  for (const ChunkState& chunk : state_->chunks) {
    for (const float x : chunk.compensator->residual()) energy += double{x} * x;
  }
  return energy;
}

}  // namespace sluice
