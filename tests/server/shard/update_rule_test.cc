// SPDX-License-Identifier: Apache-2.0
// Compares update rules with the formulas of their papers in double precision, for different vector
// lengths, and bit for bit across instruction sets.
#include "server/shard/update_rule.h"

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "compress/simd/targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

constexpr double kRate = 0.05;

std::vector<float> Draw(size_t count, uint64_t stream) {
  CounterRandom random(7, stream, 0);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(2 * random.Uniform() - 1);
  }
  return values;
}

// The parameters and slots of a chunk under a rule.
struct Chunk {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;

  Chunk(const UpdateRule& rule, size_t count)
      : parameters(Draw(count, 1)), slots(rule.slots(), std::vector<float>(count)) {}

  void Update(const UpdateRule& rule, uint64_t number, const std::vector<float>& gradient) {
    std::vector<absl::Span<float>> spans(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) spans[i] = absl::MakeSpan(slots[i]);
    rule.Apply(number, kRate, rule.momentum(), gradient, absl::MakeSpan(parameters), spans);
  }
};

// Computes one parameter in double precision with the formulas of the papers.
class Reference {
 public:
  Reference(const job::OptimizerSpec& spec, double parameter) : spec_(spec), w_(parameter) {}

  double Update(double t, double g) {
    if (spec_.name == "adamw") {
      w_ -= kRate * spec_.weight_decay * w_;
    } else {
      g += spec_.weight_decay * w_;
    }
    if (spec_.name == "sgd") {
      m_ = spec_.momentum * m_ + g;
      w_ -= kRate * (spec_.nesterov ? g + spec_.momentum * m_ : m_);
    } else if (spec_.name == "rmsprop") {
      v_ = spec_.alpha * v_ + (1 - spec_.alpha) * g * g;
      m_ = spec_.momentum * m_ + g / (std::sqrt(v_) + spec_.eps);
      w_ -= kRate * m_;
    } else {
      m_ = spec_.beta1 * m_ + (1 - spec_.beta1) * g;
      v_ = spec_.beta2 * v_ + (1 - spec_.beta2) * g * g;
      const double mean = m_ / (1 - std::pow(spec_.beta1, t));
      const double square = v_ / (1 - std::pow(spec_.beta2, t));
      w_ -= kRate * mean / (std::sqrt(square) + spec_.eps);
    }
    return w_;
  }

 private:
  const job::OptimizerSpec spec_;
  double w_, m_ = 0, v_ = 0;
};

struct RuleCase {
  std::string name;
  job::OptimizerSpec spec;
  size_t slots;
};

std::vector<RuleCase> Cases() {
  return {
      {"sgd", {.name = "sgd"}, 0},
      {"sgd_decay", {.name = "sgd", .weight_decay = 0.01}, 0},
      {"momentum", {.name = "sgd", .momentum = 0.9, .weight_decay = 0.01}, 1},
      {"nesterov", {.name = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}, 1},
      {"adam", {.name = "adam", .weight_decay = 0.01}, 2},
      {"adam_betas", {.name = "adam", .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3}, 2},
      {"adamw", {.name = "adamw", .weight_decay = 0.1}, 2},
      {"rmsprop", {.name = "rmsprop", .weight_decay = 0.01}, 1},
      {"rmsprop_momentum", {.name = "rmsprop", .momentum = 0.8, .alpha = 0.9}, 2},
  };
}

class RuleTest : public ::testing::TestWithParam<RuleCase> {
 protected:
  RuleTest() : rule_(*UpdateRule::Create(GetParam().spec)) {}
  const UpdateRule rule_;
};

TEST_P(RuleTest, IsThePapersFormula) {
  EXPECT_EQ(rule_.slots(), GetParam().slots);
  constexpr size_t kCount = 37;
  Chunk chunk(rule_, kCount);
  std::vector<Reference> references;
  for (const float parameter : chunk.parameters)
    references.emplace_back(GetParam().spec, parameter);
  for (uint64_t step = 1; step <= 50; ++step) {
    const std::vector<float> gradient = Draw(kCount, 100 + step);
    chunk.Update(rule_, step, gradient);
    for (size_t i = 0; i < kCount; ++i) {
      const double expected =
          references[i].Update(static_cast<double>(step), static_cast<double>(gradient[i]));
      ASSERT_NEAR(chunk.parameters[i], expected, 2e-5) << "element " << i << ", update " << step;
    }
  }
}

TEST_P(RuleTest, AllInstructionSetsGiveTheSameBitsAtEveryLength) {
  for (const size_t count : {0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 129}) {
    std::vector<std::vector<float>> all;
    for (const std::string& target : compress::SimdTargets()) {
      compress::ForceSimdTarget(target);
      Chunk chunk(rule_, count);
      for (uint64_t step = 1; step <= 3; ++step) {
        chunk.Update(rule_, step, Draw(count, 100 + step));
      }
      for (const std::vector<float>& slot : chunk.slots) {
        chunk.parameters.insert(chunk.parameters.end(), slot.begin(), slot.end());
      }
      all.push_back(chunk.parameters);
    }
    compress::ForceSimdTarget("");
    for (const std::vector<float>& other : all) ASSERT_EQ(other, all.front()) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RuleTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(UpdateRule, RefusesWhatItDoesNotKnow) {
  const auto rule = UpdateRule::Create({.name = "lion"});
  EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(rule.status().message(), HasSubstr("\"lion\" is not known: use sgd, adam"));
}

}  // namespace
}  // namespace sluice::server
