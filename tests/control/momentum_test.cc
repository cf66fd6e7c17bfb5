#include "server/control/momentum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/control/controller.h"

namespace sluice {
namespace {

CodecSpec Spec(const char* text) { return *ParseCodecSpec(text); }

TEST(Momentum, StaysWithFourBitsAndMore) {
  for (const char* spec : {"none", "fp16", "bf16", "int8", "int4", "fp8", "natural", "qsgd:4",
                           "eden:4", "topk:50%", "topk:100%+int4"}) {
    EXPECT_EQ(MomentumWith(Spec(spec), 0.9), 0.9) << spec;
  }
}

TEST(Momentum, IsLoweredWhereValuesWait) {
  for (const char* spec :
       {"ternary:0.5", "sign", "onebit", "terngrad", "int2", "eden:2", "topk:10%", "topk:1%+int4",
        "topk_exact:5%", "randomk:1%", "blocktopk:64", "threshold:1e-2"}) {
    EXPECT_EQ(MomentumWith(Spec(spec), 0.9), 0.5) << spec;
    EXPECT_EQ(MomentumWith(Spec(spec), 0.3), 0.3) << spec;
    EXPECT_EQ(MomentumWith(Spec(spec), 0.9, 0), 0) << spec;
  }
}

TEST(Momentum, IsLogLinearInBetween) {
  CodecSpec spec = Spec("topk:10%");
  spec.level = std::sqrt(0.10 * 0.50);
  EXPECT_NEAR(MomentumWith(spec, 0.9), 0.7, 1e-9);
  double before = 0.5;
  for (spec.level = 0.1; spec.level < 0.5; spec.level += 0.02) {
    EXPECT_GE(MomentumWith(spec, 0.9), before);
    before = MomentumWith(spec, 0.9);
  }
}

TEST(Momentum, OfAJobIsTheLeastThatAnyLargeTensorWants) {
  const std::vector<ControlledTensor> tensors = {{.elements = 1000000}, {.elements = 5000}};
  const Coding dense{.codecs = {Spec("int8"), Spec("int8")}};
  const Coding coded{.codecs = {Spec("topk:1%"), Spec("int8")}};
  const Coding small{.codecs = {Spec("int8"), Spec("topk:1%")}};
  EXPECT_EQ(MomentumFor({.up = {dense, dense}, .down = dense}, tensors, 0.9), 0.9);
  EXPECT_EQ(MomentumFor({.up = {dense, coded}, .down = dense}, tensors, 0.9), 0.5);
  EXPECT_EQ(MomentumFor({.up = {dense, dense}, .down = coded}, tensors, 0.9), 0.5);
  EXPECT_EQ(MomentumFor({.up = {small, small}, .down = small}, tensors, 0.9), 0.9);
}

TEST(Momentum, FallsWithStaleness) {
  EXPECT_EQ(MomentumWithStaleness(0.9, 0), 0.9);
  EXPECT_NEAR(MomentumWithStaleness(0.9, 4.5), 0.5, 1e-9);
  EXPECT_EQ(MomentumWithStaleness(0.5, 100), 0);
}

// What the factors are for: with a constant gradient neither a step's length nor that of the next
// ones changes with the momentum.
TEST(Momentum, ChangesWithoutAJump) {
  double momentum = 0.9;
  double rate = 0.1;
  double buffer = 1 / (1 - momentum);
  const double length = rate * buffer;
  for (const double now : {0.5, 0.0, 0.7, 0.9}) {
    buffer *= BufferFactor(momentum, now);
    rate = 0.1 * SgdRateFactor(0.9, now);
    momentum = now;
    for (int step = 0; step < 5; ++step) {
      buffer = momentum * buffer + 1;
      EXPECT_NEAR(rate * buffer, length, 1e-9);
    }
  }
}

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
    const Coding coding{.codecs = {Spec(specs_[i])}};
    return {.up = {coding}, .down = coding};
  }
  std::vector<const char*> specs_;
};

TEST(Controller, NumbersPlansAndCarriesMomentum) {
  Controller controller(
      std::make_unique<Scripted>(std::vector<const char*>{"fp16", "topk:1%", "topk:1%", "fp16"}),
      {{.elements = 1000}}, {.base = 0.9});
  const Plan first = controller.First();
  EXPECT_EQ(first.id, 1u);
  EXPECT_EQ(first.effective_step, 0u);
  EXPECT_EQ(first.momentum, 0.9);
  EXPECT_EQ(first.buffer_factor, 1);
  EXPECT_EQ(first.rate_factor, 1);
  StepMeasurements measured;
  const auto sparse = controller.Next(measured);
  ASSERT_TRUE(sparse.has_value());
  EXPECT_EQ(sparse->id, 2u);
  EXPECT_EQ(sparse->effective_step, 2u);
  EXPECT_EQ(sparse->momentum, 0.5);
  EXPECT_NEAR(sparse->buffer_factor, 0.2, 1e-12);
  EXPECT_NEAR(sparse->rate_factor, 5, 1e-12);
  EXPECT_FALSE(controller.Next(measured).has_value()) << "step 0 again";
  measured.step = 1;
  EXPECT_EQ(controller.Next(measured)->buffer_factor, 1);
  measured.step = 2;
  const auto dense = controller.Next(measured);
  EXPECT_EQ(dense->momentum, 0.9);
  EXPECT_NEAR(dense->buffer_factor, 5, 1e-12);
  EXPECT_NEAR(dense->rate_factor, 1, 1e-12);
  measured.step = 3;
  EXPECT_FALSE(controller.Next(measured).has_value());
}

TEST(Controller, LeavesMomentumAloneIfTold) {
  const std::vector<const char*> specs = {"topk:1%"};
  Controller by_hand(std::make_unique<Scripted>(specs), {{.elements = 1000}},
                     {.base = 0.9, .automatic = false});
  EXPECT_EQ(by_hand.First().momentum, 0.9);
  Controller adam(std::make_unique<Scripted>(specs), {{.elements = 1000}},
                  {.base = 0.9, .keep_rate = true});
  const Plan plan = adam.First();
  EXPECT_EQ(plan.momentum, 0.5);
  EXPECT_EQ(plan.rate_factor, 1);
}

}  // namespace
}  // namespace sluice
