// SPDX-License-Identifier: Apache-2.0
// Measures what a guard costs a shard, as a share of summing the contributions and encoding the
// mean, in one process and on one thread. All contributions are good, so the guard changes nothing.
// usage: guard_cost [--senders N] [--steps N] [--spec SPEC ...] [--down-spec SPEC] [--limit
// PERCENT]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/check.h"
#include "base/random.h"
#include "bench/shard_side.h"
#include "compress/codec_spec.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"
#include "server/shard/contribution_guard.h"

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kChunks = 128;  // 8.4 million elements.
constexpr uint64_t kWarmSteps = 20;

struct Options {
  size_t senders = 4;
  size_t steps = 200;
  std::vector<std::string> specs = {"topk:1%+int4", "int8", "fp16", "none"};
  std::string down_spec = "int8";
  double limit = 0;
};

// Returns the gradients of one sender: a part that all senders have, and a part of its own.
std::vector<float> GradientsOf(uint32_t bundle, size_t sender, uint64_t step, size_t elements) {
  CounterRandom shared(1, bundle, step), own(2, bundle, step, sender);
  std::vector<float> gradients(elements);
  for (float& value : gradients) {
    const double common = (shared.Uniform() - 0.5) * shared.Uniform() * shared.Uniform();
    value = static_cast<float>(1e-2 * (common + 0.3 * (own.Uniform() - 0.5) * own.Uniform()));
  }
  return gradients;
}

// Returns the contributions of all senders to one bundle, once thresholds are steady.
std::vector<std::vector<std::string>> ContributionsTo(uint32_t bundle, uint32_t chunks,
                                                      const std::string& spec, size_t senders) {
  std::vector<std::vector<std::string>> contributions;
  for (size_t sender = 0; sender < senders; ++sender) {
    compress::Compressor compressor(ConfigsOf(spec, chunks),
                                    {.seed = 1, .sender = static_cast<uint32_t>(sender)});
    const std::vector<uint32_t> numbers = FirstNumbers(chunks);
    std::vector<std::vector<std::byte>> frames;
    for (uint64_t step = 1; step <= kWarmSteps; ++step) {
      const std::vector<float> gradients =
          GradientsOf(bundle, sender, step, size_t{chunks} * kChunkElements);
      const absl::Status encoded = compressor.EncodeEach(
          numbers, step,
          [&](size_t i) {
            return absl::MakeConstSpan(gradients).subspan(i * kChunkElements, kChunkElements);
          },
          &frames);
      Check(encoded.ok(), encoded.message());
      compressor.EndStep(step);
    }
    contributions.push_back(StringsOf(frames));
  }
  return contributions;
}

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Prints the guard's share of the rest of the shard's work, and returns the median in per cent.
double Measure(const std::string& spec, const Options& options) {
  const uint32_t elements = protocol::UsualBundleElements(
      *compress::ParseCodecSpec(spec), *compress::ParseCodecSpec(options.down_spec));
  const auto chunks = std::max<uint32_t>(1, elements / kChunkElements);
  std::vector<std::unique_ptr<ShardSide>> sides;
  std::vector<protocol::Bundle> bundles(kChunks / chunks);
  for (uint32_t bundle = 0; bundle < bundles.size(); ++bundle) {
    sides.push_back(std::make_unique<ShardSide>(
        options.down_spec, chunks, 1, ContributionsTo(bundle, chunks, spec, options.senders)));
    bundles[bundle].elements = size_t{chunks} * kChunkElements;
  }
  server::ContributionGuard guard({.policy = job::GuardPolicy::kSkip}, 1, options.senders, bundles,
                                  1);
  std::vector<double> shares;
  for (uint64_t step = 1; step <= kWarmSteps + options.steps; ++step) {
    Clock::duration judging{}, closing{};
    for (uint32_t bundle = 0; bundle < bundles.size(); ++bundle) {
      ShardSide& side = *sides[bundle];
      side.Admit(/*keeps_frames=*/true);
      const Clock::time_point begin = Clock::now();
      const std::vector<float> factors =
          guard.Judge(step, bundle, side.counts(), side.bundle()->Contributions(step));
      const Clock::time_point judged = Clock::now();
      side.Close();
      judging += judged - begin;
      closing += Clock::now() - judged;
      Check(factors.empty(), "no contribution is an outlier");
    }
    const Clock::time_point begin = Clock::now();
    Check(guard.EndStep(step).empty(), "the guard has nothing to say");
    judging += Clock::now() - begin;
    if (step > kWarmSteps) {
      shares.push_back(100 * std::chrono::duration<double>(judging).count() /
                       std::chrono::duration<double>(closing).count());
    }
  }
  const double median = Quantile(shares, 0.5);
  std::printf("%-14s up, %s down, %zu senders, bundles of %u chunks: %.2f %% (%.2f to %.2f)\n",
              spec.c_str(), options.down_spec.c_str(), options.senders, chunks, median,
              Quantile(shares, 0.25), Quantile(shares, 0.75));
  std::fflush(stdout);
  return median;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Measures what a guard costs, as a share of summing and encoding");
  app.add_option("--senders", options.senders, "Number of workers")
      ->check(CLI::Range(3, 64))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps whose median is printed")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--spec", options.specs, "Codecs of contributions")->capture_default_str();
  app.add_option("--down-spec", options.down_spec, "Codec of means")->capture_default_str();
  app.add_option("--limit", options.limit, "Exits with 1 if a median exceeds this, in per cent");
  CLI11_PARSE(app, argc, argv);
  double most = 0;
  for (const std::string& spec : options.specs) {
    most = std::max(most, sluice::bench::Measure(spec, options));
  }
  return options.limit > 0 && most > options.limit ? 1 : 0;
}
