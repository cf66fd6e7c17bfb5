// SPDX-License-Identifier: Apache-2.0
#include "server/control/step_memory.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::server {
namespace {

CodecPick Pick(size_t up, size_t down) { return {.up = {up, up}, .down = down}; }
ByteLimits Bytes(double up, double down) { return {.up = {up, up}, .down = down}; }

// Uses `pick` for `steps` steps. Each of them takes `beyond_s` seconds longer than predicted.
void Use(StepMemory* memory, const CodecPick& pick, const ByteLimits& bytes, double beyond_s,
         uint64_t step, size_t steps = StepMemory::kStepsMin) {
  memory->Begin(pick, bytes);
  for (size_t i = 0; i < steps; ++i) memory->Add(beyond_s);
  memory->Settle(step);
}

TEST(StepMemory, NothingIsKnownOfTooFewSteps) {
  StepMemory memory;
  Use(&memory, Pick(1, 1), Bytes(100, 100), 5, 10, StepMemory::kStepsMin - 1);
  EXPECT_EQ(memory.Find(Pick(1, 1)), nullptr);
  EXPECT_EQ(memory.Beyond(Bytes(100, 100)), 0);
}

TEST(StepMemory, OneOddStepIsNoise) {
  StepMemory memory;
  memory.Begin(Pick(1, 1), Bytes(100, 100));
  for (const double beyond_s : {3.0, 1.0, 2.0, 900.0, 2.0}) memory.Add(beyond_s);
  memory.Settle(10);
  EXPECT_EQ(memory.Find(Pick(1, 1))->beyond_s, 2);
  EXPECT_NEAR(memory.noise_s(), 1.86 / std::sqrt(5), 1e-12)
      << "half of the values are within 1 of the median";
}

TEST(StepMemory, TheNearestInBytesStandsForWhatWasNotTried) {
  StepMemory memory;
  Use(&memory, Pick(1, 1), Bytes(100, 100), 5, 10);
  Use(&memory, Pick(2, 1), Bytes(1000, 100), 7, 20);
  EXPECT_EQ(memory.Beyond(Bytes(200, 100)), 5);
  EXPECT_EQ(memory.Beyond(Bytes(2000, 100)), 7);
  EXPECT_EQ(memory.Beyond({.up = {1, 900}, .down = 100}), 7)
      << "the rank with the most bytes decides";
  EXPECT_EQ(memory.Beyond(Bytes(100, 1e6)), 5);
}

TEST(StepMemory, WhatIsInUseAgainCountsHalfAsItWas) {
  StepMemory memory;
  Use(&memory, Pick(1, 1), Bytes(100, 100), 4, 10);
  Use(&memory, Pick(2, 1), Bytes(1000, 100), 7, 20);
  Use(&memory, Pick(1, 1), Bytes(100, 100), 8, 30);
  EXPECT_EQ(memory.Find(Pick(1, 1))->beyond_s, 6);
  EXPECT_EQ(memory.Find(Pick(1, 1))->step, 30u);
}

TEST(StepMemory, ForgetsWhatIsLongAgoAndHoldsSoMany) {
  StepMemory memory;
  Use(&memory, Pick(0, 0), Bytes(1, 1), 5, 10);
  for (size_t i = 1; i <= StepMemory::kPicksMax; ++i) {
    Use(&memory, Pick(i, 0), Bytes(1 + static_cast<double>(i), 1), 1, 10 + i);
  }
  EXPECT_EQ(memory.tried().size(), StepMemory::kPicksMax);
  EXPECT_EQ(memory.Find(Pick(0, 0)), nullptr) << "the oldest pick is forgotten";
  Use(&memory, Pick(1, 1), Bytes(1, 1), 1, 2 * StepMemory::kSteps);
  EXPECT_EQ(memory.tried().size(), 1u);
  memory.Forget();
  EXPECT_TRUE(memory.tried().empty());
}

}  // namespace
}  // namespace sluice::server
