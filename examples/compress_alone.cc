// SPDX-License-Identifier: Apache-2.0
// Uses the compression library alone: four senders and a receiver in one loop, without a network
// or LibTorch. Each sender pulls the weights towards its own target. Together, the senders should
// reach the mean of the targets, with the codecs on the command line.
//
// usage: compress_alone [UPLINK [DOWNLINK]]
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/random.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "compress/frame.h"

namespace {

constexpr size_t kElements = 100'000;
constexpr uint32_t kSenders = 4;
constexpr int kSteps = 1500;
// A value may wait for about 1 / density steps. This number times the rate must be well below 1.
constexpr float kRate = 0.005f;

using Frame = std::vector<std::byte>;

// The weights, which are the same for all senders, and the bytes sent to get there.
struct Outcome {
  std::vector<float> weights = std::vector<float>(kElements);
  size_t bytes_up = 0;
  size_t bytes_down = 0;
};

// Draws each element of each target once. Most are small, as in gradients.
std::vector<std::vector<float>> Targets() {
  std::vector<std::vector<float>> targets(kSenders, std::vector<float>(kElements));
  for (uint32_t sender = 0; sender < kSenders; ++sender) {
    sluice::CounterRandom random(1, sender);
    for (float& x : targets[sender]) {
      const double u = 2 * random.Uniform() - 1;
      x = static_cast<float>(u * u * u);
    }
  }
  return targets;
}

absl::StatusOr<Outcome> Descend(const sluice::compress::CodecSpec& up,
                                const sluice::compress::CodecSpec& down,
                                const std::vector<std::vector<float>>& targets) {
  // Both ends use the same description of the chunk. In a real job, one compressor holds many
  // chunks.
  const sluice::compress::ChunkConfig uplink = {.count = kElements, .spec = up};
  const sluice::compress::ChunkConfig downlink = {.count = kElements, .spec = down};
  std::vector<sluice::compress::Compressor> senders;
  for (uint32_t sender = 0; sender < kSenders; ++sender) {
    senders.emplace_back(absl::MakeConstSpan(&uplink, 1),
                         sluice::compress::Compressor::Options{.seed = 1, .sender = sender});
  }
  const std::unique_ptr<sluice::compress::Aggregator> aggregator =
      sluice::compress::MakeAggregator(uplink, kSenders);
  sluice::compress::Compressor answer(
      absl::MakeConstSpan(&downlink, 1),
      {.seed = 1, .sender = sluice::compress::Compressor::kShardSender});
  Outcome outcome;
  std::vector<float> gradient(kElements), sum(kElements), step(kElements);
  for (int i = 0; i < kSteps; ++i) {
    // Each sender encodes its gradient. The compressor keeps the values that the codec leaves out.
    std::vector<Frame> frames(kSenders);
    for (uint32_t sender = 0; sender < kSenders; ++sender) {
      for (size_t j = 0; j < kElements; ++j) {
        gradient[j] = outcome.weights[j] - targets[sender][j];
      }
      absl::Status encoded = senders[sender].Encode(0, i, gradient, &frames[sender]);
      if (!encoded.ok()) return encoded;
      senders[sender].EndStep(i);
      outcome.bytes_up += frames[sender].size();
    }
    // The receiver validates frames before it decodes them, because they are untrusted bytes.
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (uint32_t sender = 0; sender < kSenders; ++sender) {
      absl::Status valid = aggregator->Validate(sender, frames[sender]);
      if (!valid.ok()) return valid;
      aggregator->Add({{sender, frames[sender]}}, absl::MakeSpan(sum));
    }
    aggregator->Close(kSenders, absl::MakeSpan(sum));
    Frame published;
    absl::Status encoded = answer.Encode(0, i, sum, &published);
    if (!encoded.ok()) return encoded;
    answer.EndStep(i);
    aggregator->AppendShared(&published);
    outcome.bytes_down += published.size();
    // All senders decode the same mean.
    std::fill(step.begin(), step.end(), 0.0f);
    absl::Status decoded = sluice::compress::DecodeAddFrames(published, absl::MakeSpan(step));
    if (!decoded.ok()) return decoded;
    for (size_t j = 0; j < kElements; ++j) outcome.weights[j] -= kRate * step[j];
    for (sluice::compress::Compressor& sender : senders) {
      if (sender.observes(0)) sender.Observe(0, published);
    }
  }
  return outcome;
}

// Returns the distance of the weights from the mean of the targets, relative to the distance at the
// start, where all weights are zero.
double Distance(const std::vector<float>& weights, const std::vector<std::vector<float>>& targets) {
  double from = 0, began = 0;
  for (size_t j = 0; j < kElements; ++j) {
    double mean = 0;
    for (const std::vector<float>& target : targets) mean += target[j] / double{kSenders};
    from += (weights[j] - mean) * (weights[j] - mean);
    began += mean * mean;
  }
  return std::sqrt(from / began);
}

}  // namespace

int main(int argc, char** argv) {
  const auto up = sluice::compress::ParseCodecSpec(argc > 1 ? argv[1] : "topk:1%+int4");
  const auto down = sluice::compress::ParseCodecSpec(argc > 2 ? argv[2] : "topk:3%+int4");
  for (const auto* spec : {&up, &down}) {
    if (spec->ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(spec->status().message()).c_str());
    return 2;
  }
  const std::vector<std::vector<float>> targets = Targets();
  const absl::StatusOr<Outcome> outcome = Descend(*up, *down, targets);
  if (!outcome.ok()) {
    std::fprintf(stderr, "%s\n", std::string(outcome.status().message()).c_str());
    return 1;
  }
  const double dense = double{kElements} * sizeof(float) * kSteps;
  std::printf(
      "%s up: %.0fx fewer bytes; %s down: %.0fx; distance from the minimum %.4f of the initial "
      "one\n",
      sluice::compress::ToString(*up).c_str(),
      dense * kSenders / static_cast<double>(outcome->bytes_up),
      sluice::compress::ToString(*down).c_str(), dense / static_cast<double>(outcome->bytes_down),
      Distance(outcome->weights, targets));
  return 0;
}
