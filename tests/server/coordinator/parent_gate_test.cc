// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/parent_gate.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

TEST(ParentGateTest, TheParentIsAskedOnceInATerm) {
  ParentGate gate;
  EXPECT_FALSE(gate.asked());
  EXPECT_TRUE(gate.Ask());
  EXPECT_FALSE(gate.Ask());
  EXPECT_TRUE(gate.awaits_start());
  EXPECT_FALSE(gate.is_open());
  gate.Open();
  EXPECT_TRUE(gate.is_open());
  EXPECT_FALSE(gate.awaits_start());
  EXPECT_FALSE(gate.Ask());
  gate.ResetForTerm();
  EXPECT_FALSE(gate.asked());
  EXPECT_TRUE(gate.Ask());
}

TEST(ParentGateTest, TheParentIsToldOnceThatTheRackHasFinished) {
  ParentGate gate;
  gate.Ask();
  gate.Open();
  EXPECT_FALSE(gate.is_leaving());
  EXPECT_TRUE(gate.Leave());
  EXPECT_TRUE(gate.is_leaving());
  EXPECT_FALSE(gate.Leave());
  EXPECT_TRUE(gate.is_open());
}

}  // namespace
}  // namespace sluice::server
