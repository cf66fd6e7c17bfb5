// SPDX-License-Identifier: Apache-2.0
#include "follow/update_log.h"

#include <gtest/gtest.h>

#include <utility>

namespace sluice::follow {
namespace {

WeightsState State(uint64_t step, uint32_t term = 1, unsigned char content = 0) {
  WeightsState state{.version = {.term = term, .step = step}};
  state.digest[0] = static_cast<std::byte>(step);
  state.digest[1] = static_cast<std::byte>(content);
  return state;
}

SharedUpdate PatchTo(uint64_t step, size_t bytes, uint64_t from) {
  return std::make_shared<const WeightsUpdate>(WeightsUpdate{
      .base = State(from), .result = State(step), .bytes = std::vector<std::byte>(bytes)});
}

SharedUpdate AnchorOf(uint64_t step) {
  return std::make_shared<const WeightsUpdate>(
      WeightsUpdate{.anchor = true, .base = {}, .result = State(step), .bytes = {}});
}

UpdateLog LogOfThree() {
  UpdateLog log(100);
  log.Begin(State(0));
  for (uint64_t step = 1; step <= 3; ++step) log.Add(PatchTo(step, 10, step - 1));
  return log;
}

TEST(UpdateLog, ServesEachFollowerThePatchAfterItsVersion) {
  const UpdateLog log = LogOfThree();
  for (uint64_t step = 0; step < 3; ++step) {
    const UpdateLog::Choice choice = log.NextFor(State(step));
    ASSERT_EQ(choice.next, UpdateLog::Next::kUpdate);
    EXPECT_EQ(choice.update->result, State(step + 1));
    EXPECT_EQ(log.Behind(State(step)), 3 - step);
  }
  EXPECT_EQ(log.NextFor(State(3)).next, UpdateLog::Next::kNothing);
}

TEST(UpdateLog, HasNothingBeforeItBegins) {
  EXPECT_EQ(UpdateLog(100).NextFor(std::nullopt).next, UpdateLog::Next::kNothing);
}

TEST(UpdateLog, AFollowerThatIsAheadWaits) {
  EXPECT_EQ(LogOfThree().NextFor(State(9)).next, UpdateLog::Next::kNothing);
}

TEST(UpdateLog, OtherContentOrAnOlderTermNeedsAnAnchor) {
  const UpdateLog log = LogOfThree();
  EXPECT_EQ(log.NextFor(std::nullopt).next, UpdateLog::Next::kAnchor);
  EXPECT_EQ(log.NextFor(State(3, 1, 7)).next, UpdateLog::Next::kAnchor);
  EXPECT_EQ(log.NextFor(State(2, 1, 7)).next, UpdateLog::Next::kAnchor);
  EXPECT_EQ(log.NextFor(State(9, 0)).next, UpdateLog::Next::kAnchor);
}

TEST(UpdateLog, EvictsTheOldestPatchesBeyondItsLimit) {
  UpdateLog log = LogOfThree();
  log.Add(PatchTo(4, 85, 3));
  EXPECT_EQ(log.bytes(), 95U);
  EXPECT_EQ(log.NextFor(State(1)).next, UpdateLog::Next::kAnchor);
  EXPECT_EQ(log.NextFor(State(2)).next, UpdateLog::Next::kUpdate);
  EXPECT_FALSE(log.Behind(State(1)).has_value());
  log.Add(PatchTo(5, 101, 4));  // Larger than an anchor.
  EXPECT_EQ(log.bytes(), 0U);
  EXPECT_EQ(log.NextFor(State(4)).next, UpdateLog::Next::kAnchor);
}

TEST(UpdateLog, FollowersShareAnAnchorThatLeadsToTheNewestVersion) {
  UpdateLog log = LogOfThree();
  const SharedUpdate anchor = AnchorOf(3);
  log.SetAnchor(anchor);
  EXPECT_EQ(log.NextFor(std::nullopt).update, anchor);
  log.Add(PatchTo(4, 10, 3));
  EXPECT_EQ(log.NextFor(std::nullopt).update, anchor);
  log.Add(PatchTo(5, 95, 4));  // Evicts the patch from version 3.
  EXPECT_EQ(log.NextFor(std::nullopt).next, UpdateLog::Next::kAnchor);
}

TEST(UpdateLog, AtMostTwoAnchorsAreInUse) {
  UpdateLog log = LogOfThree();
  SharedUpdate first = AnchorOf(3);
  log.SetAnchor(first);
  log.Begin(State(10));
  const SharedUpdate second = AnchorOf(10);
  log.SetAnchor(second);
  log.Begin(State(20));
  EXPECT_EQ(log.NextFor(std::nullopt).next, UpdateLog::Next::kLater);
  first.reset();  // The last follower has received it.
  EXPECT_EQ(log.NextFor(std::nullopt).next, UpdateLog::Next::kAnchor);
}

TEST(UpdateLog, BeginningAgainForgetsPatches) {
  UpdateLog log = LogOfThree();
  log.Begin(State(2, 2));
  EXPECT_EQ(log.bytes(), 0U);
  EXPECT_EQ(log.NextFor(State(3)).next, UpdateLog::Next::kAnchor);
  EXPECT_EQ(log.NextFor(State(2, 2)).next, UpdateLog::Next::kNothing);
}

}  // namespace
}  // namespace sluice::follow
