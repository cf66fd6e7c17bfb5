// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/held_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

protocol::CheckpointPart HeldPart(std::string name, uint64_t step, uint32_t term = 0) {
  return {.term = term, .step = step, .name = std::move(name), .error = {}};
}

std::vector<std::string> NamesTaken(HeldParts* held, uint64_t step, uint32_t term = 0) {
  std::vector<std::string> names;
  for (const protocol::CheckpointPart& part : held->Take(step, term)) names.push_back(part.name);
  return names;
}

TEST(HeldParts, GivesThePartsOfOneStepOnce) {
  HeldParts held;
  held.Keep(HeldPart("worker-1-term-0.state", 20));
  held.Keep(HeldPart("worker-0-term-0.state", 20));
  held.Keep(HeldPart("worker-2-term-0.state", 30));
  held.Keep(HeldPart("worker-3-term-0.state", 10));
  EXPECT_THAT(NamesTaken(&held, 20), ElementsAre("worker-0-term-0.state", "worker-1-term-0.state"));
  EXPECT_THAT(NamesTaken(&held, 20), IsEmpty());
  EXPECT_THAT(NamesTaken(&held, 10), IsEmpty()) << "the step is over";
  EXPECT_THAT(NamesTaken(&held, 30), ElementsAre("worker-2-term-0.state"));
}

TEST(HeldParts, ALaterPartOfTheSameNameReplacesTheEarlierOne) {
  HeldParts held;
  held.Keep(HeldPart("worker-0-term-0.state", uint64_t{1} << 62));
  held.Keep(HeldPart("worker-0-term-0.state", 20));
  EXPECT_THAT(NamesTaken(&held, 20), ElementsAre("worker-0-term-0.state"));
}

TEST(HeldParts, PartsOfAnEarlierTermAreDropped) {
  HeldParts held;
  held.Keep(HeldPart("worker-0-term-0.state", 20));
  EXPECT_THAT(NamesTaken(&held, 20, 1), IsEmpty());
  held.Keep(HeldPart("worker-0-term-0.state", 20));
  held.Keep(HeldPart("worker-1-term-1.state", 20, 1));
  EXPECT_THAT(NamesTaken(&held, 20, 1), ElementsAre("worker-1-term-1.state"));
}

TEST(HeldParts, ARankThatIsReplacedDeliversAgain) {
  HeldParts held;
  for (const char* name : {"worker-0-term-0.state", "worker-1-term-0.state", "parameters.pt"}) {
    held.Keep(HeldPart(name, 20));
  }
  HeldParts other = held;
  held.RemoveRank(0);
  EXPECT_THAT(NamesTaken(&held, 20), ElementsAre("worker-1-term-0.state"));
  other.RemoveRank(1);
  EXPECT_THAT(NamesTaken(&other, 20), ElementsAre("parameters.pt", "worker-0-term-0.state"));
  for (const char* name : {"worker-0-term-0.state", "z.pt"}) other.Keep(HeldPart(name, 25));
  EXPECT_THAT(NamesTaken(&other, 25), ElementsAre("z.pt", "worker-0-term-0.state"));
  other.Keep(HeldPart("parameters.pt", 30));
  other.Remove("parameters.pt");
  EXPECT_THAT(NamesTaken(&other, 30), IsEmpty());
}

}  // namespace
}  // namespace sluice::server
