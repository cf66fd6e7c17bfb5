// SPDX-License-Identifier: Apache-2.0
#include "worker/core/step_clock.h"

#include <gtest/gtest.h>

namespace sluice::worker {
namespace {

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(StepClock, TellsWhatAStepWasMadeOf) {
  StepClock clock;
  clock.Encoded(At(1), At(2));
  clock.Waited(At(2), At(10));  // The step's beginning is unknown.
  EXPECT_EQ(clock.seconds().steps, 0u);
  clock.Decoded(absl::Seconds(1));    // The step decodes from 10 to 11.
  clock.Encoded(At(14), At(15));      // Runs during the backward pass.
  clock.Encoded(At(15.5), At(16.5));  // Half of it runs after the backward pass.
  clock.Waited(At(16), At(20));
  const StepSeconds& seconds = clock.seconds();
  EXPECT_EQ(seconds.steps, 1u);
  EXPECT_DOUBLE_EQ(seconds.compute, 5);
  EXPECT_DOUBLE_EQ(seconds.decode, 1);
  EXPECT_DOUBLE_EQ(seconds.encode, 0.5);
  EXPECT_DOUBLE_EQ(seconds.exchange, 3.5);
  EXPECT_DOUBLE_EQ(seconds.encode_hidden_too, 2);
}

TEST(StepClock, MeansMayBeDecodedWhileTheStepIsOpen) {
  StepClock clock;
  clock.Waited(At(0), At(1));
  clock.Encoded(At(2), At(3));
  clock.WaitedForTensors(At(4), At(6), /*encoding=*/true);
  clock.Decoded(absl::Seconds(2));  // From 6 to 8, while the last bundle is encoded.
  clock.Encoded(At(5), At(9));
  clock.WaitedForTensors(At(8), At(10), /*encoding=*/false);
  clock.Decoded(absl::Seconds(1));
  clock.Waited(At(11), At(14));
  const StepSeconds& seconds = clock.seconds();
  EXPECT_EQ(seconds.steps, 1u);
  EXPECT_DOUBLE_EQ(seconds.compute, 3);
  EXPECT_DOUBLE_EQ(seconds.decode, 3);
  EXPECT_DOUBLE_EQ(seconds.encode, 2 + 1);
  EXPECT_DOUBLE_EQ(seconds.exchange, 1 + 3);
  clock.Waited(At(15), At(16));
  EXPECT_DOUBLE_EQ(clock.seconds().compute, 3 + 1);
  EXPECT_DOUBLE_EQ(clock.seconds().decode, 3);
}

TEST(StepClock, AStepThatEncodesNothingOwesNothingToTheOneBefore) {
  StepClock clock;
  clock.Waited(At(0), At(1));
  clock.Encoded(At(1), At(3));
  clock.Waited(At(2), At(4));
  clock.Waited(At(5), At(7));  // A skipped step.
  EXPECT_EQ(clock.seconds().steps, 2u);
  EXPECT_DOUBLE_EQ(clock.seconds().encode, 1);
  EXPECT_DOUBLE_EQ(clock.seconds().exchange, 1 + 2);
  EXPECT_DOUBLE_EQ(clock.seconds().compute, 1 + 1);
}

}  // namespace
}  // namespace sluice::worker
