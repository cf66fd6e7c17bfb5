#include "compress/compressor.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/compensator.h"
#include "compress/dgc.h"
#include "compress/difference.h"
#include "compress/frame.h"

namespace sluice {
namespace {

// Chunks with an equal spec share a codec and, if it takes one, a threshold; with scope=tensor only
// those of one tensor.
struct Group {
  CodecSpec spec;
  uint32_t tensor = 0;
  std::unique_ptr<Codec> codec;
  bool observes = false;
  float threshold = 0;            // 0: each chunk takes its own.
  MagnitudeHistogram magnitudes;  // Of this step.
  uint64_t kept = 0;              // In this step.
  uint64_t elements = 0;          // Encoded in this step.
  uint64_t size = 0;              // Elements of all its chunks.
  float correction = 1;           // What the density is asked for times; see Correct.

  void ForgetStep() {
    if (magnitudes.total() > 0) magnitudes.Clear();
    kept = 0;
    elements = 0;
  }
};

// A threshold that is one step late lets through more than its density where gradients are noisy,
// and less where feedback has piled values up just below it. This takes the bias out over some tens
// of steps, so that the mean of what is kept follows the density, by asking the histogram for
// another one: that has a gain of about one, whatever the distribution, which a correction of the
// threshold itself would not have.
constexpr double kLargestCorrection = 4;
void Correct(double wanted, Group* group) {
  constexpr double kGain = 0.05;
  constexpr double kWorst = -4;  // A step far above counts as five times its share.
  const double target = std::max(wanted * static_cast<double>(group->elements), 1.0);
  const double error = std::max(1 - static_cast<double>(group->kept) / target, kWorst);
  group->correction = static_cast<float>(std::clamp(group->correction * (1 + kGain * error),
                                                    1 / kLargestCorrection, kLargestCorrection));
}

// In saved groups and chunks. Compensators have other names.
constexpr char kThreshold[] = "threshold";
constexpr char kCorrection[] = "correction";

absl::Status CheckSavedGroup(const SavedState& saved, size_t index) {
  const auto in_range = [&](const char* name, double least, double most) {
    const auto found = saved.find(name);
    return found != saved.end() && found->second.size() == 1 && found->second[0] >= least &&
           found->second[0] <= most;
  };
  if (saved.size() == 2 && in_range(kThreshold, 0, std::numeric_limits<float>::max()) &&
      in_range(kCorrection, 1 / kLargestCorrection, kLargestCorrection)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "saved group ", index, " is not one threshold and one correction of ", 1 / kLargestCorrection,
      " to ", kLargestCorrection, "; use an earlier checkpoint"));
}

struct ChunkState {
  ChunkConfig config;
  size_t group = 0;
  std::unique_ptr<Compensator> compensator;
  std::vector<float> codec_state;

  std::vector<StateField> Fields() {
    std::vector<StateField> fields = compensator->State();
    if (!codec_state.empty()) fields.push_back({kCodecState, &codec_state, codec_state.size()});
    return fields;
  }
};

std::string Describe(const ChunkConfig& chunk) {
  return absl::StrCat(chunk.count, " elements of ", ToString(chunk.spec), ", chunk ", chunk.id,
                      " of tensor ", chunk.tensor, " in ", chunk.rows, " rows");
}

absl::Status CheckSavedChunk(const SavedCompressor::Chunk& saved, size_t index, ChunkState* chunk) {
  if (saved.config != chunk->config) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk ", index, " was saved as ", Describe(saved.config), " and is now ",
                     Describe(chunk->config),
                     "; go on with the job file of the run that saved it, or begin anew"));
  }
  absl::Status fits = CheckFields(saved.state, chunk->Fields());
  if (fits.ok() && !chunk->codec_state.empty() && !saved.state.contains(kCodecState)) {
    fits = absl::InvalidArgumentError("the codec's state is missing");
  }
  if (fits.ok()) return fits;
  return absl::InvalidArgumentError(
      absl::StrCat("chunk ", index, ": ", fits.message(), "; use an earlier checkpoint"));
}

bool IsOf(const Group& group, const ChunkConfig& chunk) {
  return group.spec == chunk.spec &&
         (!chunk.spec.has(kTensorScope) || group.tensor == chunk.tensor);
}

double DensityAt(const Group& group, uint64_t step) {
  return WarmupDensity(group.codec->density(), step, group.spec.compensator.warmup);
}

}  // namespace

struct Compressor::State {
  Options options;
  std::vector<Group> groups;
  std::vector<ChunkState> chunks;
  std::vector<bool> listed;  // Scratch of CheckList; all false between calls.
  EncodeScratch scratch;

  // Of the chunk's spec and tensor; a new one takes over from an equal one of `before`.
  size_t FindOrAddGroup(const ChunkConfig& chunk, std::vector<Group>* before);
  absl::Status CheckRecoding(size_t chunk, const CodecSpec& spec) const;
  absl::Status CheckId(size_t chunk) const;
  absl::Status CheckSize(size_t chunk, size_t elements) const;
  absl::Status CheckGradient(size_t chunk, absl::Span<const float> gradient) const;
  // That they are there, and each once.
  absl::Status CheckList(absl::Span<const uint32_t> ids);
  absl::Status EncodeChecked(size_t chunk, uint64_t step, absl::Span<const float> gradient,
                             std::vector<std::byte>* frame);
};

size_t Compressor::State::FindOrAddGroup(const ChunkConfig& chunk, std::vector<Group>* before) {
  const auto of_chunk = [&](const Group& group) { return IsOf(group, chunk); };
  const auto found = std::find_if(groups.begin(), groups.end(), of_chunk);
  if (found != groups.end()) return static_cast<size_t>(found - groups.begin());
  const auto earlier = std::find_if(before->begin(), before->end(), of_chunk);
  if (earlier == before->end()) {
    Group& group = groups.emplace_back();
    group.spec = chunk.spec;
    group.tensor = chunk.tensor;
    group.codec = MakeCodec(chunk.spec);
  } else {
    groups.push_back(std::move(*earlier));
    groups.back().size = 0;
    before->erase(earlier);
  }
  return groups.size() - 1;
}

absl::Status Compressor::State::CheckRecoding(size_t chunk, const CodecSpec& spec) const {
  const ChunkState& state = chunks[chunk];
  const ChunkConfig& config = state.config;
  const std::unique_ptr<Codec> codec = MakeCodec(spec);
  const char* why = nullptr;
  if (spec.compensator != config.spec.compensator) {
    why = "what is kept of earlier encodings cannot change";
  } else if (!state.codec_state.empty() || codec->StateSize(config.count, config.rows) > 0) {
    why = "codecs with a state cannot change";
  } else if (sluice::MaxFrameSize(*codec, config.count, config.rows) > kMaxFrameSize) {
    why = "its frames may be over the limit";
  }
  if (why == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk, ": ", ToString(config.spec),
                                                 " cannot become ", ToString(spec), ": ", why));
}

absl::Status Compressor::State::CheckId(size_t chunk) const {
  if (chunk < chunks.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("chunk ", chunk, " of ", chunks.size(), " does not exist"));
}

absl::Status Compressor::State::CheckSize(size_t chunk, size_t elements) const {
  absl::Status there = CheckId(chunk);
  if (!there.ok()) return there;
  const size_t wanted = chunks[chunk].config.count;
  if (elements == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk, ": gradient has ", elements,
                                                 " elements, the chunk has ", wanted));
}

absl::Status Compressor::State::CheckGradient(size_t chunk,
                                              absl::Span<const float> gradient) const {
  absl::Status fits = CheckSize(chunk, gradient.size());
  if (!fits.ok()) return fits;
  absl::Status finite = chunks[chunk].compensator->Check(gradient);
  if (finite.ok()) return finite;
  return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk, ": ", finite.message()));
}

absl::Status Compressor::State::EncodeChecked(size_t chunk, uint64_t step,
                                              absl::Span<const float> gradient,
                                              std::vector<std::byte>* frame) {
  ChunkState& state = chunks[chunk];
  Group& group = groups[state.group];
  EncodeInput input;
  input.gradient = gradient;
  input.threshold = group.threshold;
  if (group.codec->density() > 0) {
    input.magnitudes = &group.magnitudes;
    input.magnitude_stride = MagnitudeHistogram::StrideFor(group.size, group.codec->density());
    input.kept = &group.kept;
    group.elements += gradient.size();
    input.density = DensityAt(group, step);
  }
  // Counters of what a shared and an own random number are drawn for; senders count from 1.
  input.shared_key = CounterRandom(options.seed, state.config.id, step, 0).Next();
  input.own_key =
      CounterRandom(options.seed, state.config.id, step, uint64_t{options.sender} + 1).Next();
  input.rows = state.config.rows;
  input.state = absl::MakeSpan(state.codec_state);
  input.scratch = &scratch;
  return state.compensator->Encode(*group.codec, input, frame);
}

absl::Status Compressor::State::CheckList(absl::Span<const uint32_t> ids) {
  absl::Status status;
  size_t checked = 0;
  for (; checked < ids.size(); ++checked) {
    const uint32_t chunk = ids[checked];
    status = CheckId(chunk);
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

Compressor::Compressor(absl::Span<const ChunkConfig> chunks, const Options& options)
    : state_(std::make_unique<State>()) {
  state_->options = options;
  std::vector<Group> none;
  for (const ChunkConfig& chunk : chunks) {
    ChunkState& added = state_->chunks.emplace_back();
    added.config = chunk;
    added.group = state_->FindOrAddGroup(chunk, &none);
    Group& group = state_->groups[added.group];
    group.size += chunk.count;
    sluice::Check(sluice::MaxFrameSize(*group.codec, chunk.count, chunk.rows) <= kMaxFrameSize,
                  "chunks are cut so that their frames stay below the limit");
    added.compensator = MakeCompensator(chunk.spec, chunk.count);
    added.codec_state.resize(group.codec->StateSize(chunk.count, chunk.rows));
    if (added.codec_state.empty()) continue;
    group.observes = group.codec->observes();
    group.codec->InitState(chunk.count, chunk.rows,
                           CounterRandom(options.seed, chunk.id, 0, 0).Next(),
                           absl::MakeSpan(added.codec_state));
  }
  state_->listed.resize(chunks.size());
}

Compressor::~Compressor() = default;
Compressor::Compressor(Compressor&&) noexcept = default;
Compressor& Compressor::operator=(Compressor&&) noexcept = default;

size_t Compressor::chunks() const { return state_->chunks.size(); }

absl::Status Compressor::Encode(size_t chunk, uint64_t step, absl::Span<const float> gradient,
                                std::vector<std::byte>* frame) {
  absl::Status valid = state_->CheckGradient(chunk, gradient);
  if (!valid.ok()) return valid;
  return state_->EncodeChecked(chunk, step, gradient, frame);
}

absl::Status Compressor::Check(size_t chunk, absl::Span<const float> gradient) const {
  return state_->CheckGradient(chunk, gradient);
}

absl::Status Compressor::EncodeAll(absl::Span<const uint32_t> chunks, uint64_t step,
                                   absl::Span<const absl::Span<const float>> gradients,
                                   std::vector<std::vector<std::byte>>* frames) {
  if (chunks.size() != gradients.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(chunks.size(), " chunks with ", gradients.size(), " gradients"));
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    absl::Status fits = state_->CheckSize(chunks[i], gradients[i].size());
    if (!fits.ok()) return fits;
  }
  return EncodeEach(
      chunks, step, [&](size_t i) { return gradients[i]; }, frames);
}

absl::Status Compressor::EncodeEach(absl::Span<const uint32_t> chunks, uint64_t step,
                                    absl::FunctionRef<absl::Span<const float>(size_t)> gradient_of,
                                    std::vector<std::vector<std::byte>>* frames) {
  absl::Status valid = state_->CheckList(chunks);
  if (!valid.ok()) return valid;
  frames->resize(chunks.size());
  // Chunk by chunk, so that what the check has read is in a cache when it is encoded.
  absl::Status refused;
  for (size_t i = 0; i < chunks.size(); ++i) {
    (*frames)[i].clear();
    const absl::Span<const float> gradient = gradient_of(i);
    absl::Status finite = state_->CheckGradient(chunks[i], gradient);
    refused.Update(finite);
    if (!finite.ok()) continue;
    const absl::Status encoded = state_->EncodeChecked(chunks[i], step, gradient, &(*frames)[i]);
    sluice::Check(encoded.ok(), encoded.message());
  }
  if (refused.ok()) return refused;
  for (size_t i = 0; i < chunks.size(); ++i) {
    // Codecs that lose nothing keep no residual, and none is made for this.
    const ChunkState& chunk = state_->chunks[chunks[i]];
    const bool lossless = state_->groups[chunk.group].codec->lossless();
    if ((*frames)[i].empty() || (lossless && chunk.compensator->residual().empty())) continue;
    const absl::Status taken = TakeBack(chunks[i], (*frames)[i]);
    sluice::Check(taken.ok(), taken.message());
  }
  return refused;
}

bool Compressor::observes(size_t chunk) const {
  return state_->groups[state_->chunks[chunk].group].observes;
}

void Compressor::Observe(size_t chunk, absl::Span<const std::byte> frames) {
  ChunkState& state = state_->chunks[chunk];
  const Group& group = state_->groups[state.group];
  if (group.observes) group.codec->Observe(frames, absl::MakeSpan(state.codec_state));
}

absl::Status Compressor::TakeBack(size_t chunk, absl::Span<const std::byte> frame) {
  if (chunk >= state_->chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk ", chunk, " of ", state_->chunks.size(), " does not exist"));
  }
  ChunkState& state = state_->chunks[chunk];
  const Codec& codec = *state_->groups[state.group].codec;
  if (state.codec_state.empty() || FindFormat(codec.format())->decode_add != nullptr) {
    return state.compensator->TakeBack(frame);
  }
  absl::Status valid = ValidateFrame(frame, state.config.count);
  if (!valid.ok()) return valid;
  std::vector<float> values(state.config.count);
  codec.TakeBack(FramePayload(frame), absl::MakeSpan(state.codec_state), absl::MakeSpan(values));
  std::vector<std::byte> decoded;
  absl::Status encoded =
      EncodeFrame(*MakeCodec({.codec = CodecId::kNone}), {.gradient = values}, &decoded);
  return encoded.ok() ? state.compensator->TakeBack(decoded) : encoded;
}

void Compressor::EndStep(uint64_t step) {
  for (Group& group : state_->groups) {
    if (group.magnitudes.total() > 0) {
      // The first step's thresholds are each chunk's own.
      if (group.threshold > 0) Correct(DensityAt(group, step), &group);
      const double density = std::min(DensityAt(group, step + 1) * group.correction, 1.0);
      const float threshold = group.magnitudes.ThresholdFor(density);
      // 0: hardly anything was not zero. What passed before such a step should pass after it, no
      // more.
      if (threshold > 0) group.threshold = threshold;
      // Nor does what waits for a memory grow by waiting, as a residual does: where nothing passed,
      // the largest must the next time.
      const float largest = group.magnitudes.ThresholdForLargest();
      if (HasMemory(group.spec.compensator.id) && group.kept == 0 && largest > 0) {
        group.threshold = std::min(group.threshold, largest);
      }
    }
    group.ForgetStep();
  }
}

absl::Status Compressor::Recode(absl::Span<const CodecSpec> specs) {
  std::vector<ChunkState>& chunks = state_->chunks;
  if (specs.size() != chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(specs.size(), " codecs for ", chunks.size(), " chunks"));
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (specs[i] == chunks[i].config.spec) continue;
    absl::Status fits = state_->CheckRecoding(i, specs[i]);
    if (!fits.ok()) return fits;
  }
  std::vector<Group> before = std::move(state_->groups);
  state_->groups.clear();
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].config.spec = specs[i];
    chunks[i].group = state_->FindOrAddGroup(chunks[i].config, &before);
    state_->groups[chunks[i].group].size += chunks[i].config.count;
  }
  return absl::OkStatus();
}

SavedCompressor Compressor::Save() const {
  SavedCompressor saved;
  for (ChunkState& chunk : state_->chunks) {
    saved.chunks.push_back({chunk.config, SaveFields(chunk.Fields())});
  }
  for (const Group& group : state_->groups) {
    sluice::Check(group.elements == 0, "a compressor is saved between steps");
    saved.groups.push_back({{kThreshold, {group.threshold}}, {kCorrection, {group.correction}}});
  }
  return saved;
}

absl::Status Compressor::Restore(const SavedCompressor& saved) {
  std::vector<ChunkState>& chunks = state_->chunks;
  std::vector<Group>& groups = state_->groups;
  if (saved.chunks.size() != chunks.size() || saved.groups.size() != groups.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("saved were ", saved.chunks.size(), " chunks in ", saved.groups.size(),
                     " groups, here are ", chunks.size(), " in ", groups.size(),
                     "; go on with the job file of the run that saved them, or begin anew"));
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    absl::Status fits = CheckSavedChunk(saved.chunks[i], i, &chunks[i]);
    if (!fits.ok()) return fits;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    absl::Status fits = CheckSavedGroup(saved.groups[i], i);
    if (!fits.ok()) return fits;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const absl::Status restored = RestoreFields(saved.chunks[i].state, chunks[i].Fields());
    sluice::Check(restored.ok(), restored.message());
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].threshold = saved.groups[i].at(kThreshold)[0];
    groups[i].correction = saved.groups[i].at(kCorrection)[0];
    groups[i].ForgetStep();
  }
  return absl::OkStatus();
}

size_t Compressor::MaxFrameSize(size_t chunk) const {
  const ChunkState& state = state_->chunks[chunk];
  return sluice::MaxFrameSize(*state_->groups[state.group].codec, state.config.count,
                              state.config.rows);
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
