// SPDX-License-Identifier: Apache-2.0
#include "server/shard/publication_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;

TEST(PublicationLog, JoinsTheFramesOfEachChunkInOrder) {
  PublicationLog log(100);
  log.Add(1, {"a", "A"});
  log.Add(4, {"b", "B"});
  log.Add(5, {"c", "C"});
  const std::optional<PublicationLog::Steps> all = log.Since(1);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->count, 3u);
  EXPECT_THAT(all->frames, ElementsAre("abc", "ABC"));
  const std::optional<PublicationLog::Steps> last = log.Since(5);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->count, 1u);
  EXPECT_THAT(last->frames, ElementsAre("c", "C"));
}

TEST(PublicationLog, KnowsOnlyVersionsAtWhichAPublicationBegins) {
  PublicationLog log(100);
  EXPECT_EQ(log.Since(1), std::nullopt);
  log.Add(1, {"a"});
  log.Add(4, {"b"});
  EXPECT_EQ(log.Since(0), std::nullopt);
  EXPECT_EQ(log.Since(2), std::nullopt);
  EXPECT_EQ(log.Since(5), std::nullopt);
}

TEST(PublicationLog, EvictsTheOldestPublicationsBeyondItsLimit) {
  PublicationLog log(6);
  EXPECT_EQ(log.bytes_max(), 6u);
  log.Add(1, {"aa", "A"});
  log.Add(2, {"bb", "B"});
  EXPECT_EQ(log.bytes(), 6u);
  EXPECT_EQ(log.size(), 2u);
  log.Add(3, {"c", ""});
  EXPECT_EQ(log.bytes(), 4u);
  EXPECT_EQ(log.size(), 2u);
  EXPECT_EQ(log.Since(1), std::nullopt);
  ASSERT_TRUE(log.Since(2).has_value());
  EXPECT_THAT(log.Since(2)->frames, ElementsAre("bbc", "B"));
}

TEST(PublicationLog, KeepsNothingOfAPublicationAboveTheLimit) {
  PublicationLog log(3);
  log.Add(1, {"a"});
  log.Add(2, {"bbbb"});
  EXPECT_EQ(log.bytes(), 0u);
  EXPECT_EQ(log.size(), 0u);
  EXPECT_EQ(log.Since(2), std::nullopt);
}

}  // namespace
}  // namespace sluice::server
