// SPDX-License-Identifier: Apache-2.0
#include "server/control/controller.h"

#include <gtest/gtest.h>

#include "tests/server/control/fixed_policy.h"

namespace sluice::server {
namespace {

compress::CodecSpec ControllerSpec(const char* text) { return *compress::ParseCodecSpec(text); }

class Scripted : public Policy {
 public:
  explicit Scripted(std::vector<const char*> specs) : specs_(std::move(specs)) {}
  Choice First() override { return Make(0); }
  std::optional<Choice> Next(const StepMeasurements& measured) override {
    if (measured.step + 1 >= specs_.size()) return std::nullopt;
    return Make(measured.step + 1);
  }
  std::unique_ptr<Policy> Clone() const override { return std::make_unique<Scripted>(*this); }

 private:
  Choice Make(size_t i) const {
    const Coding coding{.codecs = {ControllerSpec(specs_[i])}};
    return {.up = {coding}, .down = coding};
  }
  std::vector<const char*> specs_;
};

TEST(Controller, NumbersPlansAndCarriesMomentum) {
  Controller controller(
      std::make_unique<Scripted>(std::vector<const char*>{"fp16", "topk:1%", "topk:1%", "fp16"}),
      {{.elements = 1000}}, {.base = 0.9});
  const PolicyDecision first = controller.First();
  EXPECT_EQ(first.id, 1u);
  EXPECT_EQ(first.effective_step, 0u);
  EXPECT_EQ(first.momentum, 0.9);
  StepMeasurements measured;
  const auto sparse = controller.Next(measured);
  ASSERT_TRUE(sparse.has_value());
  EXPECT_EQ(sparse->id, 2u);
  EXPECT_EQ(sparse->effective_step, 2u);
  EXPECT_EQ(sparse->momentum, 0.5);
  EXPECT_FALSE(controller.Next(measured).has_value()) << "a repeated step gets no plan";
  measured.step = 1;
  EXPECT_EQ(controller.Next(measured)->momentum, 0.5);
  measured.step = 2;
  EXPECT_EQ(controller.Next(measured)->momentum, 0.9);
  measured.step = 3;
  EXPECT_FALSE(controller.Next(measured).has_value());
}

// The job has one momentum, so the most delayed rank or direction determines it.
TEST(Controller, TakesTheLeastMomentumOfAllRanksAndDirections) {
  const std::vector<ControlledTensor> tensors = {{.elements = 1000000}, {.elements = 5000}};
  const Coding dense{.codecs = {ControllerSpec("int8"), ControllerSpec("int8")}};
  const Coding coded{.codecs = {ControllerSpec("topk:1%"), ControllerSpec("int8")}};
  const Coding small{.codecs = {ControllerSpec("int8"), ControllerSpec("topk:1%")}};
  const auto momentum_of = [&](const Choice& choice) {
    Controller controller(std::make_unique<FixedPolicy>(choice), tensors, {.base = 0.9});
    return controller.First().momentum;
  };
  EXPECT_EQ(momentum_of({.up = {dense, dense}, .down = dense}), 0.9);
  EXPECT_EQ(momentum_of({.up = {dense, coded}, .down = dense}), 0.5);
  EXPECT_EQ(momentum_of({.up = {dense, dense}, .down = coded}), 0.5);
  EXPECT_EQ(momentum_of({.up = {small, small}, .down = small}), 0.9);
}

}  // namespace
}  // namespace sluice::server
