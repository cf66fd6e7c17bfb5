// SPDX-License-Identifier: Apache-2.0
#include "compress/compressor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/feedback/codec_group.h"
#include "compress/feedback/compensator.h"
#include "compress/frame.h"

namespace sluice::compress {
namespace {

struct ChunkState {
  ChunkConfig config;
  size_t group = 0;
  std::unique_ptr<Compensator> compensator;
  std::vector<float> codec_state;
  // True while the residual is on the device. The compensator then has either no residual or the
  // copy that Fetch made.
  bool on_device = false;
  bool fetched = false;

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
                     "; continue with the job file of the run that saved it, or start a new run"));
  }
  absl::Status fits = CheckFields(saved.state, chunk->Fields());
  if (fits.ok() && !chunk->codec_state.empty() && !saved.state.contains(kCodecState)) {
    fits = absl::InvalidArgumentError("the codec's state is missing");
  }
  if (fits.ok()) return fits;
  return absl::InvalidArgumentError(
      absl::StrCat("chunk ", index, ": ", fits.message(), "; use an earlier checkpoint"));
}

}  // namespace

struct Compressor::State {
  Options options;
  std::vector<CodecGroup> groups;
  std::vector<ChunkState> chunks;
  // Scratch buffer of CheckList. All entries are false between calls.
  std::vector<bool> listed;
  EncodeScratch scratch;
  size_t refused = 0;
  std::unique_ptr<DeviceEncoder> encoder;  // Null without a device.
  std::vector<DeviceEncoder::Task> tasks;  // This member and the next two are scratch buffers.
  std::vector<DeviceEncoder::Encoded> encoded;
  std::vector<size_t> positions;

  // Finds or adds the chunk's group. A new group inherits the state of an equal group in `before`.
  size_t FindOrAddGroup(const ChunkConfig& chunk, std::vector<CodecGroup>* before);
  absl::Status CheckRecoding(size_t chunk, const CodecSpec& spec) const;
  absl::Status CheckId(size_t chunk) const;
  absl::Status CheckSize(size_t chunk, size_t elements) const;
  absl::Status CheckGradient(size_t chunk, absl::Span<const float> gradient) const;
  // Checks that all chunks exist and that none is listed twice.
  absl::Status CheckList(absl::Span<const uint32_t> ids);
  // Returns the input without the gradient, for both kinds of encoders.
  EncodeInput InputOf(size_t chunk, uint64_t step);
  absl::Status EncodeChecked(size_t chunk, uint64_t step, absl::Span<const float> gradient,
                             std::vector<std::byte>* frame);

  bool EncodesOnDevice(size_t chunk) const;
  // Returns true if the chunk has a residual on the host or on the device.
  bool HasResidual(size_t chunk) const;
  // Returns true if the gradient is on the device and the device can encode the chunk.
  bool GoesToDevice(size_t chunk, const DeviceGradient& gradient) const;
  absl::Status MoveToDevice(ChunkState* chunk, size_t index);
  absl::Status MoveToHost(size_t chunk);
  absl::Status Fetch(ChunkState* chunk, size_t index);
  // Encodes the chunks in `ids` that the device can encode. Calls `refuse` with the position of
  // each chunk whose gradient is not finite.
  absl::Status EncodeOnDevice(absl::Span<const uint32_t> ids, uint64_t step,
                              absl::Span<const DeviceGradient> gradients,
                              absl::FunctionRef<void(size_t)> refuse,
                              std::vector<std::vector<std::byte>>* frames);
};

size_t Compressor::State::FindOrAddGroup(const ChunkConfig& chunk,
                                         std::vector<CodecGroup>* before) {
  const auto of_chunk = [&](const CodecGroup& group) { return group.Has(chunk); };
  const auto found = std::find_if(groups.begin(), groups.end(), of_chunk);
  if (found != groups.end()) return static_cast<size_t>(found - groups.begin());
  const auto earlier = std::find_if(before->begin(), before->end(), of_chunk);
  if (earlier == before->end()) {
    groups.emplace_back(chunk);
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
    why = "the compensator cannot change";
  } else if (!state.codec_state.empty() || codec->StateSize(config.count, config.rows) > 0) {
    why = "codecs with a state cannot change";
  } else if (sluice::compress::MaxFrameSize(*codec, config.count, config.rows) > kMaxFrameSize) {
    why = "its frames could exceed the limit";
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

EncodeInput Compressor::State::InputOf(size_t chunk, uint64_t step) {
  ChunkState& state = chunks[chunk];
  CodecGroup& group = groups[state.group];
  EncodeInput input;
  input.threshold = group.threshold;
  if (group.codec->density() > 0) {
    input.magnitudes = &group.magnitudes;
    input.magnitude_stride = MagnitudeHistogram::StrideFor(group.size, group.codec->density());
    input.kept = &group.kept;
    input.density = group.DensityAt(step);
  }
  // The last counter is 0 for random numbers that all senders share, and sender + 1 for a sender's
  // own.
  input.shared_key = CounterRandom(options.seed, state.config.id, step, 0).Next();
  input.own_key =
      CounterRandom(options.seed, state.config.id, step, uint64_t{options.sender} + 1).Next();
  input.rows = state.config.rows;
  input.state = absl::MakeSpan(state.codec_state);
  return input;
}

absl::Status Compressor::State::EncodeChecked(size_t chunk, uint64_t step,
                                              absl::Span<const float> gradient,
                                              std::vector<std::byte>* frame) {
  ChunkState& state = chunks[chunk];
  CodecGroup& group = groups[state.group];
  EncodeInput input = InputOf(chunk, step);
  input.gradient = gradient;
  input.scratch = &scratch;
  if (input.kept != nullptr) group.elements += gradient.size();
  return state.compensator->Encode(*group.codec, input, frame);
}

bool Compressor::State::EncodesOnDevice(size_t chunk) const {
  return encoder != nullptr && encoder->Encodes(chunks[chunk].config.spec);
}

bool Compressor::State::HasResidual(size_t chunk) const {
  const ChunkState& state = chunks[chunk];
  if (state.on_device) return encoder->has_residual(chunk);
  return !state.compensator->residual().empty();
}

bool Compressor::State::GoesToDevice(size_t chunk, const DeviceGradient& gradient) const {
  return gradient.data != nullptr && EncodesOnDevice(chunk);
}

absl::Status Compressor::State::MoveToDevice(ChunkState* chunk, size_t index) {
  chunk->fetched = false;
  std::vector<float>* const residual = chunk->compensator->MovableResidual();
  if (residual == nullptr || chunk->on_device) return absl::OkStatus();
  absl::Status written = encoder->WriteResidual(index, *residual);
  if (!written.ok()) return written;
  *residual = {};
  chunk->on_device = true;
  return written;
}

absl::Status Compressor::State::Fetch(ChunkState* chunk, size_t index) {
  if (!chunk->on_device || chunk->fetched) return absl::OkStatus();
  if (encoder->has_residual(index)) {
    std::vector<float>* const residual = chunk->compensator->MovableResidual();
    residual->resize(chunk->config.count);
    absl::Status read = encoder->ReadResidual(index, absl::MakeSpan(*residual));
    if (!read.ok()) return read;
  }
  chunk->fetched = true;
  return absl::OkStatus();
}

absl::Status Compressor::State::MoveToHost(size_t chunk) {
  ChunkState& state = chunks[chunk];
  absl::Status fetched = Fetch(&state, chunk);
  if (!fetched.ok() || !state.on_device) return fetched;
  state.on_device = state.fetched = false;
  return encoder->WriteResidual(chunk, {});
}

absl::Status Compressor::State::EncodeOnDevice(absl::Span<const uint32_t> ids, uint64_t step,
                                               absl::Span<const DeviceGradient> gradients,
                                               absl::FunctionRef<void(size_t)> refuse,
                                               std::vector<std::vector<std::byte>>* frames) {
  tasks.clear();
  positions.clear();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!GoesToDevice(ids[i], gradients[i])) continue;
    ChunkState& chunk = chunks[ids[i]];
    absl::Status moved = MoveToDevice(&chunk, ids[i]);
    if (!moved.ok()) return moved;
    const EncodeInput input = InputOf(ids[i], step);
    DeviceEncoder::Task& task = tasks.emplace_back();
    task.chunk = ids[i];
    task.count = chunk.config.count;
    task.rows = input.rows;
    task.gradient = gradients[i];
    task.spec = &chunk.config.spec;
    task.codec = groups[chunk.group].codec.get();
    task.threshold = input.threshold;
    task.density = input.density;
    task.own_key = input.own_key;
    task.shared_key = input.shared_key;
    task.state = input.state;
    task.magnitudes = input.magnitudes;
    task.magnitude_stride = input.magnitude_stride;
    positions.push_back(i);
  }
  if (tasks.empty()) return absl::OkStatus();
  absl::Status done = encoder->Encode(tasks, &encoded);
  if (!done.ok()) return done;
  for (size_t j = 0; j < tasks.size(); ++j) {
    if (encoded[j].refused) {
      refuse(positions[j]);
      continue;
    }
    CodecGroup& group = groups[chunks[tasks[j].chunk].group];
    if (tasks[j].magnitudes != nullptr) {
      group.elements += tasks[j].count;
      group.kept += encoded[j].kept;
    }
    AppendFrame(group.codec->format(), tasks[j].count, encoded[j].payload,
                &(*frames)[positions[j]]);
  }
  return done;
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
  if (options.device != nullptr) {
    state_->encoder = options.device->MakeEncoder(chunks.size());
  }
  std::vector<CodecGroup> none;
  for (const ChunkConfig& chunk : chunks) {
    ChunkState& added = state_->chunks.emplace_back();
    added.config = chunk;
    added.group = state_->FindOrAddGroup(chunk, &none);
    CodecGroup& group = state_->groups[added.group];
    group.size += chunk.count;
    sluice::Check(
        sluice::compress::MaxFrameSize(*group.codec, chunk.count, chunk.rows) <= kMaxFrameSize,
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
  if (absl::Status there = state_->CheckId(chunk); !there.ok()) return there;
  if (absl::Status here = state_->MoveToHost(chunk); !here.ok()) return here;
  absl::Status valid = state_->CheckGradient(chunk, gradient);
  if (!valid.ok()) return valid;
  return state_->EncodeChecked(chunk, step, gradient, frame);
}

absl::Status Compressor::Check(size_t chunk, absl::Span<const float> gradient) const {
  if (absl::Status there = state_->CheckId(chunk); !there.ok()) return there;
  sluice::Check(!state_->chunks[chunk].on_device || state_->chunks[chunk].fetched,
                "residuals are fetched before gradients are checked with them");
  return state_->CheckGradient(chunk, gradient);
}

absl::Status Compressor::EncodeEach(absl::Span<const uint32_t> chunks, uint64_t step,
                                    absl::FunctionRef<absl::Span<const float>(size_t)> gradient_of,
                                    std::vector<std::vector<std::byte>>* frames,
                                    absl::Span<const DeviceGradient> on_device) {
  absl::Status valid = state_->CheckList(chunks);
  if (!valid.ok()) return valid;
  if (!on_device.empty() && on_device.size() != chunks.size()) {
    return absl::InvalidArgumentError(absl::StrCat(chunks.size(), " chunks with ", on_device.size(),
                                                   " gradients that may be on a device"));
  }
  frames->resize(chunks.size());
  for (std::vector<std::byte>& frame : *frames) frame.clear();
  state_->refused = chunks.size();
  const auto refuse = [&](size_t i) { state_->refused = std::min(state_->refused, i); };
  absl::Status done = state_->EncodeOnDevice(chunks, step, on_device, refuse, frames);
  if (!done.ok()) return done;
  // Each chunk is checked and encoded before the next one, so that its data is still in a cache for
  // the encoding.
  absl::Status why;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (!on_device.empty() && state_->GoesToDevice(chunks[i], on_device[i])) continue;
    absl::Status here = state_->MoveToHost(chunks[i]);
    if (!here.ok()) return here;
    const absl::Span<const float> gradient = gradient_of(i);
    absl::Status finite = state_->CheckGradient(chunks[i], gradient);
    if (!finite.ok()) {
      refuse(i);
      why.Update(finite);
      continue;
    }
    const absl::Status encoded = state_->EncodeChecked(chunks[i], step, gradient, &(*frames)[i]);
    sluice::Check(encoded.ok(), encoded.message());
  }
  if (state_->refused == chunks.size()) return absl::OkStatus();
  for (size_t i = 0; i < chunks.size(); ++i) {
    // Lossless codecs keep no residual. A residual is created here only if owes_lossless asks for
    // it. The frame already contains any residual that an earlier codec left.
    const bool lossless = state_->groups[state_->chunks[chunks[i]].group].codec->lossless();
    const bool owes = !lossless || state_->options.owes_lossless || state_->HasResidual(chunks[i]);
    if ((*frames)[i].empty() || !owes) continue;
    const absl::Status taken = ReturnFrame(chunks[i], (*frames)[i]);
    if (state_->chunks[chunks[i]].on_device && !taken.ok()) return taken;
    sluice::Check(taken.ok(), taken.message());
  }
  if (!why.ok()) return why;
  return absl::InvalidArgumentError(absl::StrCat("chunk ", chunks[state_->refused],
                                                 ": its gradient, or the sum of gradient and "
                                                 "residual, is not finite everywhere"));
}

bool Compressor::EncodesOnDevice(size_t chunk) const { return state_->EncodesOnDevice(chunk); }

size_t Compressor::refused() const { return state_->refused; }

bool Compressor::observes(size_t chunk) const {
  return state_->groups[state_->chunks[chunk].group].observes;
}

void Compressor::Observe(size_t chunk, absl::Span<const std::byte> frames) {
  ChunkState& state = state_->chunks[chunk];
  const CodecGroup& group = state_->groups[state.group];
  if (group.observes) group.codec->Observe(frames, absl::MakeSpan(state.codec_state));
}

absl::Status Compressor::ReturnFrame(size_t chunk, absl::Span<const std::byte> frame, float share) {
  if (chunk >= state_->chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk ", chunk, " of ", state_->chunks.size(), " does not exist"));
  }
  absl::Status here = state_->MoveToHost(chunk);
  if (!here.ok()) return here;
  ChunkState& state = state_->chunks[chunk];
  const Codec& codec = *state_->groups[state.group].codec;
  const bool alone = state.codec_state.empty() || FindFormat(codec.format())->decode_add;
  if (alone && share == 1) return state.compensator->ReturnFrame(frame);
  absl::Status valid = ValidateFrame(frame, state.config.count);
  if (!valid.ok()) return valid;
  std::vector<float> values(state.config.count);
  const absl::Span<float> to = absl::MakeSpan(values);
  std::vector<float> scratch;
  if (alone) AddScaledValidFrames(frame, share, &scratch, to);
  if (!alone) codec.ReturnFrame(FramePayload(frame), absl::MakeSpan(state.codec_state), to);
  std::vector<std::byte> decoded;
  absl::Status encoded =
      EncodeFrame(*MakeCodec({.codec = CodecId::kNone}), {.gradient = values}, &decoded);
  return encoded.ok() ? state.compensator->ReturnFrame(decoded) : encoded;
}

void Compressor::EndStep(uint64_t step) {
  for (CodecGroup& group : state_->groups) group.EndStep(step);
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
  std::vector<CodecGroup> before = std::move(state_->groups);
  state_->groups.clear();
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].config.spec = specs[i];
    chunks[i].group = state_->FindOrAddGroup(chunks[i].config, &before);
    state_->groups[chunks[i].group].size += chunks[i].config.count;
  }
  return absl::OkStatus();
}

absl::Status Compressor::FetchResiduals() {
  for (size_t i = 0; i < state_->chunks.size(); ++i) {
    absl::Status fetched = state_->Fetch(&state_->chunks[i], i);
    if (!fetched.ok()) return fetched;
  }
  return absl::OkStatus();
}

absl::Status Compressor::FetchResidual(size_t chunk) {
  return state_->Fetch(&state_->chunks[chunk], chunk);
}

SavedCompressor Compressor::Save() const {
  SavedCompressor saved;
  for (ChunkState& chunk : state_->chunks) {
    sluice::Check(!chunk.on_device || chunk.fetched, "residuals are fetched before they are saved");
    saved.chunks.push_back({chunk.config, SaveFields(chunk.Fields())});
  }
  for (const CodecGroup& group : state_->groups) {
    sluice::Check(group.elements == 0, "a compressor is saved between steps");
    saved.groups.push_back(group.Save());
  }
  return saved;
}

absl::Status Compressor::Restore(const SavedCompressor& saved) {
  std::vector<ChunkState>& chunks = state_->chunks;
  std::vector<CodecGroup>& groups = state_->groups;
  const bool groups_fit = saved.groups.empty() || saved.groups.size() == groups.size();
  if (saved.chunks.size() != chunks.size() || !groups_fit) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the saved state has ", saved.chunks.size(), " chunks in ", saved.groups.size(),
        " groups, this job has ", chunks.size(), " in ", groups.size(),
        "; continue with the job file of the run that saved them, or start a new run"));
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    absl::Status fits = CheckSavedChunk(saved.chunks[i], i, &chunks[i]);
    if (!fits.ok()) return fits;
  }
  if (absl::Status fits = CheckSavedGroups(saved.groups); !fits.ok()) return fits;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].on_device) {
      chunks[i].on_device = chunks[i].fetched = false;
      absl::Status forgotten = state_->encoder->WriteResidual(i, {});
      if (!forgotten.ok()) return forgotten;
    }
    const absl::Status restored = RestoreFields(saved.chunks[i].state, chunks[i].Fields());
    sluice::Check(restored.ok(), restored.message());
  }
  RestoreGroups(saved.groups, absl::MakeSpan(groups));
  return absl::OkStatus();
}

size_t Compressor::MaxFrameSize(size_t chunk) const {
  const ChunkState& state = state_->chunks[chunk];
  return sluice::compress::MaxFrameSize(*state_->groups[state.group].codec, state.config.count,
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

}  // namespace sluice::compress
