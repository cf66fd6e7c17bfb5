// SPDX-License-Identifier: Apache-2.0
// Trains small models with the library. Measures the accuracy cost of each codec at three momenta,
// and shows the effect of feedback where theory requires it.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/crc32c.h"
#include "compress/codec_table.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"
#include "tests/compress/short_runs.h"
#include "tests/convergence/exchange.h"
#include "tests/convergence/text_model.h"

namespace sluice {
namespace {

constexpr bool kShort = compress::kShortRuns;
const bool kLong = std::getenv("SLUICE_LONG") != nullptr;
constexpr uint32_t kWorkers = 4;

// SGD with momentum, as in PyTorch.
class Momentum {
 public:
  Momentum(double momentum, size_t count)
      : momentum_(static_cast<float>(momentum)), buffer_(count) {}

  void Step(double rate, const std::vector<float>& gradient, std::vector<float>* parameters) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      buffer_[i] = momentum_ * buffer_[i] + gradient[i];
      (*parameters)[i] -= static_cast<float>(rate) * buffer_[i];
    }
  }

 private:
  const float momentum_;
  std::vector<float> buffer_;
};

const std::string& Text() {
  static const std::string* const text = [] {
    std::ifstream file(SLUICE_TEXT, std::ios::binary);
    return new std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return *text;
}

constexpr int kTextSteps = kShort ? 3 : 600;

struct TextRun {
  double loss = 0;
  uint32_t parameters = 0;  // Checksum of the parameters.
  double bytes_up = 0;      // Per parameter, step and worker.
  double bytes_down = 0;
};

// The rate falls to 0 over the last third, so that the final loss does not contain the noise of the
// last steps.
TextRun TrainText(const std::string& uplink, const std::string& downlink, double momentum,
                  int steps = kTextSteps) {
  // The batch is small because most of the time is spent in the model, not in the codecs.
  constexpr size_t kBatch = kShort ? 2 : 16;
  constexpr double kRate = 0.5;  // Later multiplied by 1 - momentum.
  TextModel model(Text());
  Exchange exchange(model.tensors(), uplink, downlink, kWorkers);
  // With dgc, the workers apply the momentum, and the optimizer has none.
  const bool on_workers =
      compress::ParseCodecSpec(uplink)->compensator.id == compress::CompensatorId::kDgc;
  Momentum optimizer(on_workers ? 0 : momentum, model.size());
  std::vector<std::vector<float>> gradients(kWorkers);
  std::vector<float> mean(model.size());
  for (int step = 0; step < steps; ++step) {
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      CounterRandom random(5, static_cast<uint64_t>(step), worker);
      size_t places[kBatch];
      for (size_t& place : places) place = random.Below(model.places());
      model.Loss(places, &gradients[worker]);
    }
    exchange.Mean(gradients, &mean);
    const double left = 1 - static_cast<double>(step) / steps;
    const double rate = kRate * (1 - momentum) * std::min(1.0, 3 * left);
    optimizer.Step(rate, mean, &model.parameters());
  }
  std::vector<size_t> places;
  for (size_t place = 0; place < model.places(); place += kShort ? 1009 : 5)
    places.push_back(place);
  const double each = static_cast<double>(model.size()) * steps;
  const auto* const bytes = reinterpret_cast<const std::byte*>(model.parameters().data());
  return {model.Loss(places, nullptr), Crc32c({bytes, model.size() * sizeof(float)}),
          static_cast<double>(exchange.bytes_up()) / each / kWorkers,
          static_cast<double>(exchange.bytes_down()) / each};
}

TEST(TextModel, GradientIsThatOfItsLoss) {
  TextModel model(Text());
  const size_t places[] = {5, 900, 3000};
  std::vector<float> gradient;
  model.Loss(places, &gradient);
  size_t begin = 0;
  for (const TensorShape& tensor : model.tensors()) {
    for (uint64_t draw = 0; draw < 20; ++draw) {
      const size_t at = begin + CounterRandom(3, begin, draw).Below(tensor.count);
      const float value = model.parameters()[at];
      constexpr float kStep = 1e-2f;
      model.parameters()[at] = value + kStep;
      const double above = model.Loss(places, nullptr);
      model.parameters()[at] = value - kStep;
      const double below = model.Loss(places, nullptr);
      model.parameters()[at] = value;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[at], 2e-3) << at;
    }
    begin += tensor.count;
  }
}

// A strongly convex problem in which each worker has a different minimum. At the common minimum the
// workers' gradients cancel each other, so a codec that drops parts of each does not reach it.
struct Quadratic {
  static constexpr size_t kCount = 1536;
  std::vector<double> curvature;            // Curvatures from 0.1 to 1.
  std::vector<std::vector<double>> wanted;  // The minimum of each worker.
  std::vector<double> minimum;

  Quadratic() : wanted(kWorkers, std::vector<double>(kCount)), minimum(kCount) {
    CounterRandom random(9);
    for (size_t i = 0; i < kCount; ++i) {
      curvature.push_back(std::exp2(-3.32 * random.Uniform()));
      for (uint32_t worker = 0; worker < kWorkers; ++worker) {
        const double u = 2 * random.Uniform() - 1;
        wanted[worker][i] = 3 * u * u * u;
        minimum[i] += wanted[worker][i] / kWorkers;
      }
    }
  }
};

// Returns true for codecs that round a value just above half a step to a full step. The remainder
// is then almost as large as the value, with the opposite sign.
bool HardlyContracts(const compress::CodecSpec& spec) {
  return spec.codec == compress::CodecId::kIntSum && spec.level == 2;
}

// Returns the rate that theory allows. Delayed values must not become too old, noise must average
// out over the steps, and momentum multiplies the rate.
double QuadraticRate(const compress::CodecSpec& spec) {
  const compress::CodecTraits traits = compress::TraitsOf(spec.codec, spec.options);
  double rate = 0.3;
  if (traits.sparse) {
    const double density = compress::MakeCodec(spec)->density();
    rate = std::min(rate, 5 * (density > 0 ? density : 1.0 / 256));
  }
  if (traits.unbiased && !traits.lossless) rate = std::min(rate, 0.05);
  if (spec.compensator.id == compress::CompensatorId::kDgc) rate *= 1 - spec.compensator.level;
  // EF21 needs a rate in proportion to the share of a difference that the codec removes.
  if (spec.compensator.id == compress::CompensatorId::kEf21 && HardlyContracts(spec)) rate = 0.01;
  return rate;
}

// Returns the remaining share of the distance to the minimum. The rate falls to 0 or is constant.
enum class Rate { kFalls, kStays };
double MinimizeQuadratic(const compress::CodecSpec& spec, Rate falling = Rate::kFalls) {
  static const Quadratic* const quadratic = new Quadratic();
  const double rate = QuadraticRate(spec);
  const int steps = kShort ? 60 : static_cast<int>(450 / rate);
  const TensorShape shape{Quadratic::kCount, 48};
  Exchange exchange({shape}, compress::ToString(spec), "none", kWorkers);
  std::vector<float> x(Quadratic::kCount), mean(Quadratic::kCount);
  std::vector<std::vector<float>> gradients(kWorkers, x);
  for (int step = 0; step < steps; ++step) {
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      for (size_t i = 0; i < x.size(); ++i) {
        gradients[worker][i] =
            static_cast<float>(quadratic->curvature[i] * (x[i] - quadratic->wanted[worker][i]));
      }
    }
    exchange.Mean(gradients, &mean);
    const double left = falling == Rate::kStays ? 1 : 1 - static_cast<double>(step) / steps;
    for (size_t i = 0; i < x.size(); ++i) x[i] -= static_cast<float>(rate * left) * mean[i];
  }
  double off = 0, way = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    off += (x[i] - quadratic->minimum[i]) * (x[i] - quadratic->minimum[i]);
    way += quadratic->minimum[i] * quadratic->minimum[i];
  }
  return std::sqrt(off / way);
}

// Solves many pairs of the least-squares problem of Karimireddy et al. 2019. A pair's gradients are
// s(1, -1) + e(1, 1) and have the signs of (1, -1), so descent by signs never moves along (1, 1).
// Returns the remaining share of the distance along (1, 1).
double SolvePairs(const compress::CodecSpec& spec) {
  constexpr size_t kPairs = 128;
  constexpr float kSlant = 0.4f;
  double slower = 1;
  if (spec.compensator.id == compress::CompensatorId::kDgc)
    slower = 1 / (1 - spec.compensator.level);
  // Differences of noisy gradients are noisier than the gradients, and the codec's noise is
  // proportional to the differences.
  if (spec.compensator.id == compress::CompensatorId::kDiana)
    slower = 1 + compress::VarianceBound(spec) / kWorkers;
  const int steps = kShort ? 60 : static_cast<int>(3000 * slower);
  const double rate = 0.05 / slower;
  const TensorShape shape{2 * kPairs, 0};
  Exchange exchange({shape}, compress::ToString(spec), "none", kWorkers,
                    Exchange::Small::kAsOthers);
  std::vector<float> x(2 * kPairs, 1.0f), mean(x.size());
  std::vector<std::vector<float>> gradients(kWorkers, x);
  for (int step = 0; step < steps; ++step) {
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      CounterRandom random(6, static_cast<uint64_t>(step), worker);
      for (size_t pair = 0; pair < kPairs; ++pair) {
        const float side = random.Below(2) == 0 ? 1.0f : -1.0f;
        const float a = side + kSlant, b = -side + kSlant;
        const float product = a * x[2 * pair] + b * x[2 * pair + 1];
        gradients[worker][2 * pair] = a * product;
        gradients[worker][2 * pair + 1] = b * product;
      }
    }
    exchange.Mean(gradients, &mean);
    const double left = 1 - static_cast<double>(step) / steps;
    for (size_t i = 0; i < x.size(); ++i) x[i] -= static_cast<float>(rate * left) * mean[i];
  }
  double off = 0;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    off += std::abs(x[2 * pair] + x[2 * pair + 1]) / (2 * kPairs);
  }
  return off;
}

// Returns the share of a difference that the codec removes.
double Contraction(const compress::CodecSpec& spec) {
  const compress::LoneCodec codec(compress::ToString(spec));
  const std::vector<float> x = compress::Gaussian(1536, 3);
  const std::vector<float> decoded = codec.Decoded(codec.Encoded(x), x.size());
  double off = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    off += std::pow(double{x[i]} - decoded[i], 2);
    all += std::pow(double{x[i]}, 2);
  }
  return 1 - off / all;
}

// Returns the codecs of CompensatedSpecs that a small problem can judge. Excludes codecs that send
// very few elements per step, and feedback with a decay, which forgets a part of what it owes.
// Includes dgc, which needs low rates and long runs, only with the table's examples. Without
// SLUICE_LONG, dgc has one codec, and codecs have compensators other than their usual one only at
// the level of their example.
std::vector<compress::CodecSpec> JudgedSpecs() {
  std::vector<compress::CodecSpec> judged;
  for (const compress::CodecSpec& spec : compress::CompensatedSpecs()) {
    const bool slow = (spec.codec == compress::CodecId::kBlockTopK && spec.level > 256) ||
                      (spec.codec == compress::CodecId::kRandomK && spec.level < 0.02);
    const bool decays = spec.compensator.id == compress::CompensatorId::kErrorFeedback &&
                        spec.compensator.level != 0;
    compress::CodecSpec plain = spec;
    plain.compensator =
        compress::ParseCodecSpec(compress::FindCodec(spec.codec).example)->compensator;
    const bool example = compress::ToString(plain) == compress::FindCodec(spec.codec).example;
    const bool absolute = compress::FindCodec(spec.codec).level == compress::LevelKind::kPositive;
    const bool dgc = spec.compensator.id == compress::CompensatorId::kDgc;
    const bool usual = dgc ? spec.codec == compress::CodecId::kTopK
                           : example || spec.compensator.id == plain.compensator.id;
    if (slow || decays || !(usual || kLong || kShort)) continue;
    if (!dgc || (example && !absolute)) judged.push_back(spec);
  }
  return judged;
}

class WithEveryCodec : public ::testing::TestWithParam<compress::CodecSpec> {
 protected:
  compress::CodecTraits Traits() const {
    return compress::TraitsOf(GetParam().codec, GetParam().options);
  }
  bool Vote() const {
    return compress::FindCodec(GetParam().codec).aggregation == compress::Aggregation::kVote;
  }
  // Returns true if dropped values are neither sent later nor correct on average.
  bool Lost() const {
    return GetParam().compensator.id == compress::CompensatorId::kNone && !Traits().unbiased &&
           !Traits().lossless;
  }
};

TEST_P(WithEveryCodec, QuadraticOfHeterogeneousWorkers) {
  const double left = MinimizeQuadratic(GetParam());
  RecordProperty("left", absl::StrCat(left));
  std::printf("  left of the way: %.5f\n", left);
  EXPECT_TRUE(std::isfinite(left));
  if (kShort) return;
  if (!Lost()) {
    // Masking drops the momentum of elements that were just sent. Workers with large gradients send
    // often and lose more momentum, which shifts the balance between different workers.
    const bool masks = GetParam().compensator.id == compress::CompensatorId::kDgc;
    // Codecs that clip are biased, and their noise is proportional to the gradient.
    EXPECT_LE(left, masks ? 0.25 : Traits().clips ? 0.2 : 0.05);
    return;
  }
  // Codecs that do not converge in theory must not converge here either. Votes have no magnitude.
  // Other codecs miss the minimum in proportion to the elements of a block that they drop.
  EXPECT_GT(left, 1e-4);
  const bool absolute =
      compress::FindCodec(GetParam().codec).level == compress::LevelKind::kPositive;
  // Random positions shrink all elements equally, which slows progress but keeps the direction.
  const bool at_random = GetParam().codec == compress::CodecId::kRandomK;
  if (Traits().sparse && !absolute && !at_random &&
      compress::MakeCodec(GetParam())->density() < 0.5) {
    EXPECT_GT(left, 0.3);
  }
}

TEST_P(WithEveryCodec, SignCounterexample) {
  const double left = SolvePairs(GetParam());
  RecordProperty("left", absl::StrCat(left));
  std::printf("  left of the way: %.5f\n", left);
  EXPECT_TRUE(std::isfinite(left));
  if (kShort || Lost()) return;
  // The gradients are noisy here. If the codec lags behind, EF21's memories follow the noise.
  const bool behind = HardlyContracts(GetParam()) || Contraction(GetParam()) < 0.1;
  if (GetParam().compensator.id == compress::CompensatorId::kEf21 && behind) return;
  EXPECT_LE(left, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Codecs, WithEveryCodec, ::testing::ValuesIn(JudgedSpecs()),
                         compress::CompensatedName);

// These codecs must fail without feedback. In theory, some lose exactly the (1, 1) component.
TEST(SignCounterexample, FailsWithoutFeedback) {
  if (kShort) GTEST_SKIP() << "short runs have too few steps to fail";
  for (const char* text : {"signsgd", "sign/noef", "ternary:0.01/noef", "topk:1%/noef"}) {
    EXPECT_GT(SolvePairs(*compress::ParseCodecSpec(text)), 0.5) << text;
  }
}

// At a constant rate, only compensators with a memory reach the minimum. The workers' gradients are
// not 0 there, so a codec that drops or randomly rounds parts of them has no fixed point at the
// minimum. A codec that encodes differences from a memory has one.
TEST(Memories, ComeToTheMinimumAtARateThatStays) {
  const auto left = [](const char* text) {
    const double share = MinimizeQuadratic(*compress::ParseCodecSpec(text), Rate::kStays);
    std::printf("  %s: %.7f left of the way\n", text, share);
    return share;
  };
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {"qsgd:4/noef", "qsgd:4/diana"},
      {"qsgd:2/noef", "qsgd:2/diana"},
      {"terngrad/noef", "terngrad/diana"},
      {"eden:1/noef", "eden:1/diana"},
      {"topk:1%/ef", "topk:1%/ef21"},
      {"ternary:0.5/ef", "ternary:0.5/ef21"},
      {"int2/ef", "int2/ef21"},
      {"topk:1%/noef", "topk:1%/ef21"}};
  for (const auto& [without, with] : pairs) {
    const double stays = left(without), arrives = left(with);
    if (kShort) continue;
    EXPECT_GT(stays, 1e-3);
    EXPECT_LT(arrives, 1e-4);
  }
}

// With these codecs, EF21 must be far worse than feedback. EF21 needs exact gradients: its memories
// treat noise as information, and a codec that lags behind sends a step's noise in later steps
// (Fatkhullin et al. 2023). With feedback, the noise adds up and cancels.
TEST(Memories, FollowNoiseWhereACodecIsBehind) {
  for (const char* codec : {"ternary:1", "blocktopk:256+sign"}) {
    const double residual = SolvePairs(*compress::ParseCodecSpec(absl::StrCat(codec, "/ef")));
    const double memory = SolvePairs(*compress::ParseCodecSpec(absl::StrCat(codec, "/ef21")));
    std::printf("  %s: %.5f with feedback, %.5f with ef21\n", codec, residual, memory);
    if (kShort) continue;
    EXPECT_LT(residual, 0.01);
    EXPECT_GT(memory, 0.2);
  }
}

// The gap to dense training at the momenta 0, 0.5 and 0.9, with a constant rate / (1 - momentum).
// docs/compression.md shows this table.
struct Cost {
  const char* uplink;
  const char* downlink;
  double gap[3];
};
// Runs that differ only in rounding differ by up to 0.003, and runs with unbiased noise by up to
// 0.01.
constexpr double kNoise = 0.015;
constexpr double kMomenta[] = {0, 0.5, 0.9};
// By default, the test uses only each codec's first row and the last momentum, which is the hardest
// for all codecs except dgc. The whole table takes minutes.
const size_t kFirstMomentum = kLong || kShort ? 0 : std::size(kMomenta) - 1;
const size_t kMomentaEnd = kShort ? 2 : std::size(kMomenta);
constexpr Cost kCosts[] = {
    {"none", "none", {0, 0, 0}},
    {"fp16", "fp16", {0, 0, 0}},
    {"bf16", "bf16", {0, 0, 0}},
    {"int8", "int8", {0, 0, 0}},
    {"int4", "int4", {0, 0, 0}},
    {"int2", "int8", {0.007, 0.005, 0}},
    {"int2/noef", "int8", {0.44, 0.45, 0.396}},
    {"intsum:4", "int8", {0, 0, 0}},
    {"intsum:2", "int8", {0.027, 0.031, 0.019}},
    {"intsum:2/noef", "int8", {0.915, 0.924, 0.922}},
    {"qsgd:4", "int8", {0, 0.011, 0}},
    {"qsgd:2", "int8", {0.025, 0.017, 0.037}},
    {"natural", "int8", {0, 0, 0}},
    {"sign", "int8", {0.01, 0.014, 0.03}},
    {"sign", "sign", {0.013, 0.022, 0.05}},
    {"sign/noef", "int8", {0.705, 0.712, 0.71}},
    {"onebit", "int8", {0.007, 0.014, 0.031}},
    {"eden:1", "int8", {0, 0.013, 0.007}},
    {"eden:2", "int8", {0, 0.008, 0.004}},
    {"eden:1/ef", "int8", {0, 0.007, 0}},
    {"countsketch:4x", "int8", {0.299, 0.302, 0.298}},
    {"countsketch:10x", "int8", {0.688, 0.68, 0.699}},
    {"lsh", "int8", {0, 0, 0}},
    {"powersgd:1", "int8", {0.086, 0.093, 0.087}},
    {"powersgd:4", "int8", {0.012, 0.024, 0.019}},
    {"powersgd:4/noef", "int8", {0.455, 0.45, 0.439}},
    {"ternary:0.5", "int8", {0.009, 0.013, 0.013}},
    {"ternary:0.9", "int8", {0.065, 0.071, 0.078}},
    {"ternary:0.5/noef", "int8", {0.577, 0.577, 0.537}},
    {"ternary:0.5", "ternary:0.5", {0.019, 0.025, 0.024}},
    {"topk:5%", "int8", {0.013, 0.016, 0.014}},
    {"topk:1%", "int8", {0.066, 0.076, 0.071}},
    {"topk:1%+int4", "int8", {0.07, 0.075, 0.07}},
    {"topk:1%+int4", "topk:3%+int4", {0.075, 0.082, 0.077}},
    {"topk:1%+int8", "int8", {0.07, 0.074, 0.069}},
    {"topk:1%+sign", "int8", {0.067, 0.072, 0.069}},
    {"topk_exact:1%", "int8", {0.069, 0.071, 0.069}},
    {"threshold:0.1", "int8", {0.085, 0.088, 0.097}},
    {"fp8", "int8", {0, 0, 0}},
    {"fp8:e5m2", "int8", {0, 0, 0}},
    {"terngrad", "int8", {0.198, 0.211, 0.212}},
    {"blocktopk:64", "int8", {0.054, 0.057, 0.06}},
    {"randomk:5%", "int8", {0.091, 0.096, 0.151}},
    {"randomk:25%,unbiased", "int8", {0.059, 0.073, 0.035}},
    {"topk:1%/dgc", "int8", {0.066, 0.148, 0.324}},
    {"ternary:0.5/dgc", "int8", {0.009, 0.212, 0.914}},
    {"topk:0.1%", "int8", {0.292, 0.3, 0.293}},
    {"topk:1%/noef", "int8", {0.734, 0.738, 0.717}},
    {"int4/ef21", "int8", {0, 0, 0}},
    {"int2/ef21", "int8", {1.583, 1.475, 1.532}},
    {"eden:1/ef21", "int8", {0, 0.024, 0.005}},
    {"sign/ef21", "int8", {0.501, 0.498, 0.575}},
    {"intsum:4/ef21", "int8", {0, 0, 0}},
    {"ternary:0.5/ef21", "int8", {0.646, 0.566, 0.48}},
    {"topk:5%/ef21", "int8", {0.239, 0.292, 0.253}},
    {"topk:1%/ef21", "int8", {0.965, 1.001, 0.964}},
    {"qsgd:4/diana", "int8", {0, 0, 0}},
    {"qsgd:2/diana", "int8", {0.02, 0.023, 0.023}},
    {"eden:1/diana", "int8", {0.005, 0.009, 0.009}},
    {"terngrad/diana", "int8", {0.146, 0.152, 0.164}},
};

std::string CodecOf(const Cost& of) { return {of.uplink, std::strcspn(of.uplink, ":/")}; }

bool IsFirstOfItsCodec(const Cost& cost) {
  const Cost* first = std::begin(kCosts);
  while (CodecOf(*first) != CodecOf(cost)) ++first;
  return absl::StrCat(first->uplink, first->downlink) == absl::StrCat(cost.uplink, cost.downlink);
}

class TextCost : public ::testing::TestWithParam<Cost> {};

TEST_P(TextCost, GapToDenseIsAsDocumented) {
  const bool is_usual = IsFirstOfItsCodec(GetParam()) || absl::EndsWith(GetParam().uplink, "/dgc");
  if (!kLong && !kShort && !is_usual) GTEST_SKIP() << "SLUICE_LONG=1 runs all rows";
  static double dense[std::size(kMomenta)] = {};
  const Cost& cost = GetParam();
  std::string row = absl::StrFormat("| `%s` | `%s` |", cost.uplink, cost.downlink);
  TextRun run;
  for (size_t i = kFirstMomentum; i < kMomentaEnd; ++i) {
    if (dense[i] == 0) dense[i] = TrainText("none", "none", kMomenta[i]).loss;
    std::string uplink = cost.uplink;
    if (absl::EndsWith(uplink, "/dgc")) absl::StrAppend(&uplink, ":", kMomenta[i]);
    run = TrainText(uplink, cost.downlink, kMomenta[i]);
    const double gap = run.loss - dense[i];
    absl::StrAppendFormat(&row, " %+.3f |", gap);
    ASSERT_TRUE(std::isfinite(run.loss));
    if (kShort) continue;
    // No codec may be clearly better than dense training.
    EXPECT_NEAR(gap, cost.gap[i], kNoise + 0.15 * cost.gap[i]) << "momentum " << kMomenta[i];
    EXPECT_GT(gap, -kNoise) << "momentum " << kMomenta[i];
  }
  std::printf("%s %.3f | %.3f |\n", row.c_str(), run.bytes_up * 8, run.bytes_down * 8);
}

// Each spec must train to different weights, because no part of a spec may be ignored silently.
TEST(TextModel, NoTwoSpecsDoTheSame) {
  std::map<uint32_t, std::string> known;
  for (const compress::CodecSpec& spec : compress::CompensatedSpecs()) {
    // Some specs are equivalent: those that send all values as halves (this includes factors that
    // are no smaller than their matrix), and those with feedback but without losses.
    const bool all = compress::MakeCodec(spec)->density() == 1 ||
                     (spec.codec == compress::CodecId::kRandomK && spec.level == 1) ||
                     (spec.codec == compress::CodecId::kPowerSgd && spec.level >= 32);
    // The coding of positions changes only the bytes, not the values.
    if ((spec.options & compress::kIndex) != 0) continue;
    if (all || (compress::MakeCodec(spec)->lossless() &&
                spec.compensator.id == compress::CompensatorId::kNone)) {
      continue;
    }
    const std::string text = compress::ToString(spec);
    const auto [other, is_new] =
        known.emplace(TrainText(text, "none", 0.5, kShort ? 3 : 12).parameters, text);
    if (kShort) continue;  // In short runs, some specs do not diverge yet.
    EXPECT_TRUE(is_new) << text << " and " << other->second << " have the same effect";
  }
}

TEST(TextCost, EveryCodecHasARow) {
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    // The cost of a vote depends on the learning rate, so no table row is needed.
    if (entry.aggregation == compress::Aggregation::kVote) continue;
    bool listed = false;
    for (const Cost& cost : kCosts) {
      const std::string uplink(cost.uplink);
      listed = listed || uplink.substr(0, uplink.find_first_of(":/+")) == entry.name;
    }
    EXPECT_TRUE(listed) << std::string(entry.name) << " has no row in kCosts";
  }
}

void PrintTo(const Cost& cost, std::ostream* out) { *out << cost.uplink << " " << cost.downlink; }

INSTANTIATE_TEST_SUITE_P(Specs, TextCost, ::testing::ValuesIn(kCosts), [](const auto& cost) {
  return absl::StrCat(compress::SpecTestName(cost.param.uplink), "_down_",
                      compress::SpecTestName(cost.param.downlink));
});

}  // namespace
}  // namespace sluice
