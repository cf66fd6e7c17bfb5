// SPDX-License-Identifier: Apache-2.0
// Codecs in the forms that tests use: a codec alone, with all inputs that it may need (rows, keys,
// state), and a chunk with its senders and its receiver, as in a job.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "compress/format_table.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {

// Returns the number of rows for a chunk. Codecs of matrices need rows; other codecs ignore them.
// Returns 0 if the count has no small factor.
inline uint32_t RowsOf(size_t count) {
  for (const uint32_t rows : {48u, 32u, 12u, 4u, 2u}) {
    if (count > rows && count % rows == 0) return rows;
  }
  return 0;
}

inline std::vector<float> Gaussian(size_t count, uint64_t seed, float scale = 1e-2f) {
  CounterRandom random(seed, 77);
  std::vector<float> values(count);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
    value = scale * static_cast<float>(radius * std::cos(2 * M_PI * random.Uniform()));
  }
  return values;
}

struct LoneKeys {
  uint64_t own = 11;
  uint64_t shared = 12;
};

// A codec without its compensator. Each call begins with the state that a codec has in a job's
// first step.
class LoneCodec {
 public:
  explicit LoneCodec(const std::string& spec)
      : spec_(*ParseCodecSpec(spec)), codec_(MakeCodec(spec_)) {}

  const CodecSpec& spec() const { return spec_; }
  const CodecEntry& entry() const { return FindCodec(spec_.codec); }
  CodecTraits traits() const { return TraitsOf(spec_.codec, spec_.options); }
  const Codec& codec() const { return *codec_; }
  // Returns true if any frame of the codec can be decoded alone and added to any sum.
  bool decodes_alone() const { return FindFormat(codec_->format())->decode_add != nullptr; }

  absl::Status Encode(absl::Span<const float> gradient, absl::Span<float> residual,
                      std::vector<std::byte>* frame, float threshold = 0,
                      MagnitudeHistogram* magnitudes = nullptr, LoneKeys keys = {}) const {
    const uint32_t rows = RowsOf(gradient.size());
    std::vector<float> state(codec_->StateSize(gradient.size(), rows));
    if (!state.empty()) {
      codec_->InitState(gradient.size(), rows, keys.shared, absl::MakeSpan(state));
    }
    return EncodeFrame(*codec_,
                       {.gradient = gradient,
                        .residual = residual,
                        .threshold = threshold,
                        .magnitudes = magnitudes,
                        .own_key = keys.own,
                        .shared_key = keys.shared,
                        .rows = rows,
                        .state = absl::MakeSpan(state)},
                       frame);
  }

  // Encodes a gradient, which must succeed. There is a residual if the spec's compensator uses one,
  // because some codecs minimise the error with a residual and the bias without one.
  std::vector<std::byte> Encoded(absl::Span<const float> gradient, LoneKeys keys = {}) const {
    std::vector<std::byte> frame;
    const CompensatorId compensator = spec_.compensator.id;
    const bool unbiased =
        compensator == CompensatorId::kNone || compensator == CompensatorId::kDiana;
    std::vector<float> residual(unbiased ? 0 : gradient.size());
    const absl::Status status =
        Encode(gradient, absl::MakeSpan(residual), &frame, 0, nullptr, keys);
    Check(status.ok(), status.ToString());
    return frame;
  }

  size_t MaxFrame(size_t count) const { return MaxFrameSize(*codec_, count, RowsOf(count)); }

  // Decodes the frame of a single sender as a receiver without a memory does, and returns the
  // values.
  absl::StatusOr<std::vector<float>> Received(absl::Span<const std::byte> frame,
                                              size_t count) const {
    if (decodes_alone() && entry().aggregation == Aggregation::kAdditive) {
      std::vector<float> values(count, -0.0f);
      absl::Status status = DecodeAddFrame(frame, absl::MakeSpan(values));
      if (!status.ok()) return status;
      return values;
    }
    const std::unique_ptr<Aggregator> aggregator =
        MakeAggregator({.count = count, .spec = spec_, .rows = RowsOf(count)}, 1);
    absl::Status valid = aggregator->Validate(0, frame);
    if (!valid.ok()) return valid;
    std::vector<float> sum(count);
    aggregator->Add({{0, frame}}, absl::MakeSpan(sum));
    aggregator->Close(1, absl::MakeSpan(sum));
    return sum;
  }

  std::vector<float> Decoded(absl::Span<const std::byte> frame, size_t count) const {
    absl::StatusOr<std::vector<float>> values = Received(frame, count);
    Check(values.ok(), values.status().ToString());
    return *std::move(values);
  }

 private:
  const CodecSpec spec_;
  const std::unique_ptr<Codec> codec_;
};

// The senders and the receiver of one chunk, step by step, without a network.
class OneChunk {
 public:
  using Gradients = std::vector<std::vector<float>>;

  OneChunk(const CodecSpec& spec, size_t count, uint32_t senders, uint64_t seed = 7)
      : config_{.count = count, .spec = spec, .id = 3, .tensor = 5, .rows = RowsOf(count)},
        aggregator_(MakeAggregator(config_, senders)),
        frames_(senders) {
    for (uint32_t sender = 0; sender < senders; ++sender) {
      senders_.emplace_back(absl::MakeConstSpan(&config_, 1),
                            Compressor::Options{.seed = seed, .sender = sender});
    }
  }

  uint32_t senders() const { return static_cast<uint32_t>(senders_.size()); }
  Compressor& sender(uint32_t rank) { return senders_[rank]; }
  Aggregator& aggregator() { return *aggregator_; }
  const ChunkConfig& config() const { return config_; }
  // If true, the receiver gets each frame in a separate call instead of all frames in one call.
  void set_one_by_one(bool one_by_one) { one_by_one_ = one_by_one; }
  // Frames of the last step, by sender. Empty for senders that did not take part.
  const std::vector<std::vector<std::byte>>& frames() const { return frames_; }

  // Restores the saved state of `other`, which must have the same chunk and senders.
  absl::Status GoOnFrom(OneChunk& other) {
    for (uint32_t rank = 0; rank < senders(); ++rank) {
      absl::Status restored = senders_[rank].Restore(other.senders_[rank].Save());
      if (!restored.ok()) return restored;
    }
    step_ = other.step_;
    return RestoreFields(SaveFields(other.aggregator_->State()), aggregator_->State());
  }

  // Runs a step in which all senders encode, and returns the receiver's mean. A sender with an
  // empty gradient does not take part. A sender in `refused` encodes, but its frame is refused and
  // the encoding is undone.
  std::vector<float> Step(const Gradients& gradients, const std::vector<uint32_t>& refused = {}) {
    for (uint32_t rank = 0; rank < senders(); ++rank) Encode(rank, gradients[rank]);
    return Receive(refused);
  }

  void Encode(uint32_t rank, absl::Span<const float> gradient) {
    frames_[rank].clear();
    if (gradient.empty() && config_.count > 0) return;
    const absl::Status status = senders_[rank].Encode(0, step_, gradient, &frames_[rank]);
    Check(status.ok(), status.ToString());
  }

  std::vector<float> Receive(const std::vector<uint32_t>& refused = {}) {
    std::vector<float> mean(config_.count);
    std::vector<SenderFrame> received;
    for (uint32_t rank = 0; rank < senders(); ++rank) {
      if (frames_[rank].empty()) continue;
      if (std::count(refused.begin(), refused.end(), rank) > 0) {
        const absl::Status status = senders_[rank].ReturnFrame(0, frames_[rank]);
        Check(status.ok(), status.ToString());
        continue;
      }
      const absl::Status valid = aggregator_->Validate(rank, frames_[rank]);
      Check(valid.ok(), valid.ToString());
      received.push_back({rank, frames_[rank]});
    }
    if (!received.empty()) {
      const size_t at_once = one_by_one_ ? 1 : received.size();
      for (size_t at = 0; at < received.size(); at += at_once) {
        aggregator_->Add(absl::MakeConstSpan(received).subspan(at, at_once), absl::MakeSpan(mean));
      }
      aggregator_->Close(static_cast<uint32_t>(received.size()), absl::MakeSpan(mean));
      Publish(mean);
    }
    for (Compressor& sender : senders_) sender.EndStep(step_);
    ++step_;
    return mean;
  }

 private:
  void Publish(absl::Span<const float> mean) {
    std::vector<std::byte> published;
    const absl::Status status = EncodeFrame(*CodecFor("none"), {.gradient = mean}, &published);
    Check(status.ok(), status.ToString());
    aggregator_->AppendShared(&published);
    const absl::Status valid = ValidateFrames(published, config_.count);
    Check(valid.ok(), valid.ToString());
    for (Compressor& sender : senders_) {
      if (sender.observes(0)) sender.Observe(0, published);
    }
  }

  const ChunkConfig config_;
  const std::unique_ptr<Aggregator> aggregator_;
  std::vector<Compressor> senders_;
  std::vector<std::vector<std::byte>> frames_;
  bool one_by_one_ = false;
  uint64_t step_ = 0;
};

// Returns every tested spec with its own compensator and with every other possible compensator.
inline std::vector<CodecSpec> CompensatedSpecs() {
  std::vector<CodecSpec> specs;
  const auto add = [&](const CodecSpec& spec) {
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
  };
  for (const std::string& text : TestedSpecs()) {
    add(*ParseCodecSpec(text));
    const std::string bare = text.substr(0, text.find('/'));
    for (const CompensatorId id : Compensators()) {
      const CodecSpec spec = *ParseCodecSpec(bare);
      if (!CompensatorRefusal(spec.codec, spec.options, id).empty()) continue;
      add(*ParseCodecSpec(
          absl::StrCat(bare, "/", CompensatorName(id), id == CompensatorId::kDgc ? ":0.9" : "")));
    }
  }
  return specs;
}

// Prints a spec in GoogleTest's messages.
inline void PrintTo(const CodecSpec& spec, std::ostream* out) { *out << ToString(spec); }

// Converts a spec to a test name. GoogleTest allows only letters, digits and underscores, and
// different specs must have different names.
inline std::string SpecTestName(const std::string& spec) {
  std::string name;
  for (const char c : spec) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      name += c;
    } else {
      name += c == '.' ? "p" : c == '%' ? "pc" : c == '+' ? "_with_" : c == '/' ? "_by_" : "_";
    }
  }
  return name;
}

// Appends the index, because two specs may differ only in characters that the name omits.
inline std::string CompensatedName(const ::testing::TestParamInfo<CodecSpec>& info) {
  CodecSpec bare = info.param;
  bare.compensator = {};
  const std::string name = SpecTestName(ToString(bare));
  return absl::StrCat(name.substr(0, name.find("_by_")), "_by_",
                      CompensatorName(info.param.compensator.id), "_", info.index);
}

}  // namespace sluice::compress
