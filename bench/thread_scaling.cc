// SPDX-License-Identifier: Apache-2.0
// Measures whether one process on N threads is as fast as N processes with one thread each, side by
// side. Threads that share nothing stand in for the processes. For each codec, a worker encodes
// with feedback and applies the result, and a shard sums two contributions and encodes the mean. A
// plain stream shows how far the machine's memory scales. usage: thread_scaling [--threads N]
// [--seconds S] [--rounds N] [--spec SPEC ...]
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/check.h"
#include "base/parallel.h"
#include "base/random.h"
#include "bench/paired_timing.h"
#include "bench/shard_side.h"
#include "bench/streams.h"
#include "compress/compressor.h"
#include "worker/core/result_applier.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kChunks = 384;  // 100 MB of gradients, which fit no cache.
constexpr size_t kSenders = 2;
constexpr uint64_t kWarmSteps = 20;

struct Options {
  size_t threads = 2;
  double seconds = 1;
  size_t rounds = 3;
  std::vector<std::string> specs = {"none", "fp16", "int8", "int4", "ternary:0.5", "topk:1%+int4"};
};

// Works on a range of chunks on several threads.
class Process {
 public:
  Process(const std::string& spec, uint32_t chunks, size_t threads)
      : gradients_(size_t{chunks} * kChunkElements),
        parameters_(gradients_.size()),
        compressor_(ConfigsOf(spec, chunks), {.seed = 1, .sender = 0}),
        parallel_(threads),
        applier_(threads, nullptr),
        chunks_(FirstNumbers(chunks)) {
    CounterRandom random(1);
    for (float& value : gradients_) {
      // Heavy-tailed, like gradients.
      const double x = (random.Uniform() - 0.5) * (random.Uniform() + 0.05) * random.Uniform();
      value = static_cast<float>(x * 1e-2);
    }
    while (step_ < kWarmSteps) Encode();
    shard_.emplace(spec, chunks, threads, std::vector(kSenders, StringsOf(frames_)));
    for (uint64_t step = 0; step < kWarmSteps; ++step) {
      Admit();
      Close();
    }
  }

  void Encode() {
    const absl::Status encoded = compressor_.EncodeInLanes(
        &parallel_, chunks_, ++step_,
        [this](size_t i, size_t) {
          return absl::MakeConstSpan(gradients_).subspan(i * kChunkElements, kChunkElements);
        },
        &frames_);
    Check(encoded.ok(), encoded.message());
    compressor_.EndStep(step_);
  }

  void Apply() {
    parts_.clear();
    for (size_t i = 0; i < frames_.size(); ++i) {
      parts_.push_back(
          {.offset = i * kChunkElements, .count = kChunkElements, .frames = frames_[i]});
    }
    applier_.Add(parts_, -0.1f, absl::MakeSpan(parameters_));
  }

  void Admit() { shard_->Admit(); }
  void Close() { shard_->Close(); }

  void Stream() {
    parallel_.For(chunks_.size(), [this](size_t i, size_t) {
      ReadModifyWrite(gradients_.data() + i * kChunkElements,
                      parameters_.data() + i * kChunkElements, kChunkElements);
    });
  }

 private:
  std::vector<float> gradients_;
  std::vector<float> parameters_;
  compress::Compressor compressor_;
  Parallel parallel_;
  worker::ResultApplier applier_;
  std::vector<uint32_t> chunks_;
  std::vector<std::vector<std::byte>> frames_;
  std::vector<worker::ResultPart> parts_;
  std::optional<ShardSide> shard_;
  uint64_t step_ = 0;
};

using Work = void (Process::*)();

struct Piece {
  const char* name;
  Work prepare;  // Not timed; may be null.
  Work work;
};
constexpr Piece kPieces[] = {{"encode", nullptr, &Process::Encode},
                             {"apply", nullptr, &Process::Apply},
                             {"sum+encode", &Process::Admit, &Process::Close},
                             {"stream", nullptr, &Process::Stream}};

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One process on all threads, and separate processes with one thread each.
class Comparison {
 public:
  Comparison(const std::string& spec, size_t threads)
      : whole_(spec, kChunks, threads), side_by_side_(threads) {
    for (size_t i = 0; i < threads; ++i) {
      apart_.push_back(
          std::make_unique<Process>(spec, kChunks / static_cast<uint32_t>(threads), 1));
    }
  }

  // Returns the speed of the one process as a share of that of the separate ones.
  double Measure(const Piece& piece, double seconds) {
    const auto prepare = [&] {
      (whole_.*piece.prepare)();
      for (const std::unique_ptr<Process>& process : apart_) (process.get()->*piece.prepare)();
    };
    const Timing timing = Alternate(
        {.measured = [&](size_t) { (whole_.*piece.work)(); },
         .against =
             [&](size_t) {
               side_by_side_.For(apart_.size(),
                                 [&](size_t part, size_t) { (apart_[part].get()->*piece.work)(); });
             },
         .slices = 1,
         .prepare = piece.prepare == nullptr ? std::function<void()>() : prepare},
        seconds);
    return 1 / timing.times.median;
  }

  // Returns how many times as fast the stream is on all threads as on one.
  double StreamScaling(double seconds) {
    const Timing timing = Alternate({.measured = [&](size_t) { whole_.Stream(); },
                                     .against =
                                         [&](size_t) {
                                           for (auto& process : apart_) process->Stream();
                                         },
                                     .slices = 1,
                                     .prepare = {}},
                                    seconds);
    return 1 / timing.times.median;
  }

 private:
  Process whole_;
  std::vector<std::unique_ptr<Process>> apart_;
  Parallel side_by_side_;
};

// Each round has new memory, because its place changes the figures.
void Run(const Options& options) {
  for (const std::string& spec : options.specs) {
    std::vector<std::vector<double>> shares(std::size(kPieces));
    std::vector<double> scaling;
    for (size_t round = 0; round < options.rounds; ++round) {
      Comparison comparison(spec, options.threads);
      scaling.push_back(comparison.StreamScaling(options.seconds));
      for (size_t i = 0; i < shares.size(); ++i) {
        shares[i].push_back(comparison.Measure(kPieces[i], options.seconds));
      }
    }
    std::printf("%-14s", spec.c_str());
    for (size_t i = 0; i < shares.size(); ++i) {
      const auto [low, high] = std::minmax_element(shares[i].begin(), shares[i].end());
      std::printf("  %s %.2f (%.2f-%.2f)", kPieces[i].name, MedianOf(shares[i]), *low, *high);
    }
    std::printf("  memory x%.2f\n", MedianOf(scaling));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Compares one process on N threads with N processes with one thread each");
  app.add_option("--threads", options.threads, "Number of threads")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Time for each figure")->capture_default_str();
  app.add_option("--rounds", options.rounds, "Rounds, each with new memory; medians are printed")
      ->check(CLI::Range(1, 99))
      ->capture_default_str();
  app.add_option("--spec", options.specs, "Codecs")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  sluice::bench::Run(options);
  return 0;
}
