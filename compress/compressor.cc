// SPDX-License-Identifier: Apache-2.0
#include "compress/compressor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/compressor_state.h"
#include "compress/frame.h"

namespace sluice::compress {
namespace {

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
  state_->lanes.resize(1);
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
  return state_->EncodeChecked(chunk, step, gradient, &state_->lanes[0].scratch,
                               &state_->groups[state_->chunks[chunk].group].counts, frame);
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
  return EncodeInLanes(
      nullptr, chunks, step, [&](size_t i, size_t /*lane*/) { return gradient_of(i); }, frames,
      on_device);
}

absl::Status Compressor::EncodeInLanes(Parallel* parallel, absl::Span<const uint32_t> chunks,
                                       uint64_t step, GradientOfChunk gradient_of,
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
  std::vector<size_t> on_host;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (!on_device.empty() && state_->GoesToDevice(chunks[i], on_device[i])) continue;
    absl::Status here = state_->MoveToHost(chunks[i]);
    if (!here.ok()) return here;
    on_host.push_back(i);
  }
  state_->outcomes.assign(chunks.size(), absl::OkStatus());
  state_->EncodeOnHost(parallel, chunks, step, on_host, gradient_of, frames);
  absl::Status why;
  for (const size_t i : on_host) {
    if (!state_->outcomes[i].ok()) refuse(i);
    why.Update(state_->outcomes[i]);
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
    sluice::Check(group.counts.elements == 0, "a compressor is saved between steps");
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
