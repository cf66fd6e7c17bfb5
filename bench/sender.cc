// SPDX-License-Identifier: Apache-2.0
#include "bench/sender.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::bench {
namespace {

constexpr size_t kWarmChunks = 32;  // Number of warmed-up chunks; the others are copies.
constexpr int kWarmSteps = 20;
constexpr uint32_t kRows = 256;  // Rows of a chunk, for matrix codecs.

compress::CodecSpec Parsed(const std::string& spec) {
  absl::StatusOr<compress::CodecSpec> parsed = compress::ParseCodecSpec(spec);
  Check(parsed.ok(), parsed.status().message());
  return *parsed;
}

size_t CountKept(absl::Span<const std::byte> frame) {
  std::vector<float> sum(kChunk, 0.0f);
  const absl::Status status = compress::DecodeAddFrame(frame, absl::MakeSpan(sum));
  Check(status.ok(), status.message());
  return kChunk - static_cast<size_t>(std::count(sum.begin(), sum.end(), 0.0f));
}

}  // namespace

Memory::Memory() {
  CounterRandom random(1);
  const absl::Span<float> first = measured.gradient.span();
  for (size_t i = 0; i < first.size(); ++i) {
    if (i >= kWarmChunks * kChunk) {
      first[i] = first[i - kWarmChunks * kChunk];
      continue;
    }
    // A product of three uniform variables is heavy-tailed, like gradients.
    const double x = (random.Uniform() - 0.5) * (random.Uniform() + 0.05) * random.Uniform();
    first[i] = static_cast<float>(x * 1e-2);
  }
  std::copy(first.begin(), first.end(), against.gradient.span().begin());
}

Sender::Sender(const std::string& spec, Side* side)
    : Sender(spec, side, Parsed(spec).compensator.id != compress::CompensatorId::kNone) {}

Sender::Sender(const std::string& spec, Side* side, bool feedback)
    : spec_(Parsed(spec)),
      codec_(compress::MakeCodec(spec_)),
      side_(side),
      feedback_(feedback && !codec_->lossless()),
      frames_(kChunks),
      states_(kChunks) {
  for (size_t chunk = 0; chunk < kChunks; ++chunk) {
    states_[chunk].resize(codec_->StateSize(kChunk, kRows));
    codec_->InitState(kChunk, kRows, chunk % kWarmChunks, absl::MakeSpan(states_[chunk]));
  }
  WarmUp();
}

void Sender::WarmUp() {
  const absl::Span<float> residual = side_->residual.span();
  std::fill(residual.begin(), residual.end(), 0.0f);
  for (int step = 0; step < kWarmSteps; ++step) {
    NextPass();
    for (size_t chunk = 0; chunk < kWarmChunks; ++chunk) {
      EncodeFrame(chunk);
      // With one sender, the published frame is the frame that it sent.
      if (codec_->observes()) codec_->Observe(frames_[chunk], absl::MakeSpan(states_[chunk]));
    }
  }
  for (size_t chunk = kWarmChunks; chunk < kChunks; ++chunk) {
    const absl::Span<float> from = side_->residual.chunk(chunk % kWarmChunks);
    std::copy(from.begin(), from.end(), side_->residual.chunk(chunk).begin());
    states_[chunk] = states_[chunk % kWarmChunks];
  }
}

void Sender::NextPass() {
  // Shifts by whole cache lines, because tensors are aligned.
  offset_ = (offset_ + 61 * 16) % kSlack;
  if (codec_->density() == 0) return;
  magnitudes_.Clear();
  for (size_t chunk = 0; chunk < kWarmChunks; ++chunk) {
    const compress::EncodeInput input = Input(chunk);
    magnitudes_.Add(input.gradient, input.residual);
  }
  threshold_ = magnitudes_.ThresholdFor(codec_->density());
  magnitudes_.Clear();
}

compress::EncodeInput Sender::Input(size_t chunk) {
  compress::EncodeInput input;
  input.gradient = side_->gradient.span().subspan(chunk * kChunk + offset_, kChunk);
  if (feedback_) input.residual = side_->residual.chunk(chunk);
  input.threshold = threshold_;
  if (searches_) {
    input.magnitudes = &magnitudes_;
    input.magnitude_stride =
        compress::MagnitudeHistogram::StrideFor(kChunks * kChunk, codec_->density());
  }
  input.own_key = chunk;
  input.shared_key = chunk;
  input.rows = kRows;
  input.state = absl::MakeSpan(states_[chunk]);
  input.finite = true;
  input.scratch = &scratch_;
  return input;
}

void Sender::EncodeFrame(size_t chunk) {
  frames_[chunk].clear();
  const absl::Status status = sluice::compress::EncodeFrame(*codec_, Input(chunk), &frames_[chunk]);
  Check(status.ok(), status.message());
}

void Sender::EncodePayload(size_t chunk) { EncodePayloadTo(chunk, &payload_); }
void Sender::EncodePayloadApart(size_t chunk) { EncodePayloadTo(chunk, &frames_[chunk]); }

void Sender::EncodePayloadTo(size_t chunk, std::vector<std::byte>* payload) {
  payload->clear();
  codec_->Encode(Input(chunk), payload);
}

void Sender::EncodeSlice(size_t slice) {
  for (size_t i = 0; i < kChunksInSlice; ++i) EncodeFrame(slice * kChunksInSlice + i);
}

SenderFrames FramesOf(const std::string& spec, Side* side) {
  Sender sender(spec, side);
  SenderFrames all;
  size_t kept = 0;
  // Frames of consecutive steps are about as similar as those of different senders in one step.
  for (std::vector<std::vector<std::byte>>& frames : all.of_sender) {
    frames.resize(kChunks);
    sender.NextPass();
    for (size_t chunk = 0; chunk < kWarmChunks; ++chunk) {
      sender.EncodeFrame(chunk);
      kept += CountKept(sender.frame(chunk));
      for (size_t copy = chunk; copy < kChunks; copy += kWarmChunks) {
        frames[copy] = sender.frame(chunk);
      }
    }
  }
  all.kept_per_chunk = static_cast<double>(kept) / kWarmChunks;
  return all;
}

}  // namespace sluice::bench
