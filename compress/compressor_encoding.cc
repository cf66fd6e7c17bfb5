// SPDX-License-Identifier: Apache-2.0
// The encoding of chunks by a Compressor, on the host and on the device.
#include "base/check.h"
#include "base/random.h"
#include "compress/compressor_state.h"
#include "compress/frame.h"

namespace sluice::compress {

EncodeInput Compressor::State::InputOf(size_t chunk, uint64_t step, GroupCounts* counts) {
  ChunkState& state = chunks[chunk];
  const CodecGroup& group = groups[state.group];
  EncodeInput input;
  input.threshold = group.threshold;
  if (group.codec->density() > 0) {
    input.magnitudes = &counts->magnitudes;
    input.magnitude_stride = MagnitudeHistogram::StrideFor(group.size, group.codec->density());
    input.kept = &counts->kept;
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
                                              EncodeScratch* scratch, GroupCounts* counts,
                                              std::vector<std::byte>* frame) {
  ChunkState& state = chunks[chunk];
  EncodeInput input = InputOf(chunk, step, counts);
  input.gradient = gradient;
  input.scratch = scratch;
  if (input.kept != nullptr) counts->elements += gradient.size();
  return state.compensator->Encode(*groups[state.group].codec, input, frame);
}

void Compressor::State::EncodeOnHost(Parallel* parallel, absl::Span<const uint32_t> ids,
                                     uint64_t step, absl::Span<const size_t> on_host,
                                     GradientOfChunk gradient_of,
                                     std::vector<std::vector<std::byte>>* frames) {
  // Each chunk is checked and encoded before the lane's next one, so that its data is still in a
  // cache for the encoding.
  const auto encode = [&](size_t part, size_t lane, GroupCounts* counts) {
    const size_t at = on_host[part];
    const uint32_t chunk = ids[at];
    const absl::Span<const float> gradient = gradient_of(at, lane);
    outcomes[at] = CheckGradient(chunk, gradient);
    if (!outcomes[at].ok()) return;
    const absl::Status done =
        EncodeChecked(chunk, step, gradient, &lanes[lane].scratch, counts, &(*frames)[at]);
    sluice::Check(done.ok(), done.message());
  };
  if (parallel == nullptr || parallel->lanes() == 1) {
    for (size_t part = 0; part < on_host.size(); ++part) {
      encode(part, 0, &groups[chunks[ids[on_host[part]]].group].counts);
    }
    return;
  }
  if (lanes.size() < parallel->lanes()) lanes.resize(parallel->lanes());
  for (EncodeLane& lane : lanes) lane.Begin(groups.size());
  parallel->For(on_host.size(), [&](size_t part, size_t lane) {
    encode(part, lane, lanes[lane].CountsOf(chunks[ids[on_host[part]]].group));
  });
  for (EncodeLane& lane : lanes) lane.MoveCounts(absl::MakeSpan(groups));
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
    const EncodeInput input = InputOf(ids[i], step, &groups[chunk.group].counts);
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
      group.counts.elements += tasks[j].count;
      group.counts.kept += encoded[j].kept;
    }
    AppendFrame(group.codec->format(), tasks[j].count, encoded[j].payload,
                &(*frames)[positions[j]]);
  }
  return done;
}

}  // namespace sluice::compress
