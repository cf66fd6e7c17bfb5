// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/checkpoint_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Progress = CheckpointTracker::Progress;

constexpr absl::Time kStart = absl::UnixEpoch();

protocol::CheckpointPart PartOf(std::string name, uint64_t step, uint32_t term = 0) {
  return {
      .term = term, .step = step, .name = std::move(name), .bytes = 3, .checksum = 4, .error = ""};
}

// Returns a tracker for one shard and one rank with a checkpoint every 10 steps.
CheckpointTracker BookOf(std::vector<uint64_t> complete = {}) {
  return CheckpointTracker({.interval = 10, .keep = 2, .patience = absl::Seconds(60)},
                           std::move(complete));
}

void Complete(uint64_t step, CheckpointTracker* book) {
  EXPECT_EQ(book->Add(PartOf(protocol::ShardPartName(0, 0), step), kStart), Progress::kTaken);
  EXPECT_EQ(book->Add(PartOf(protocol::WorkerPartName(0, 0), step), kStart), Progress::kComplete);
}

TEST(CheckpointTracker, RegularOnesAreMultiplesThatAreStillToCome) {
  CheckpointTracker book = BookOf();
  EXPECT_EQ(book.NextRegular(0), 10u);
  EXPECT_EQ(book.NextRegular(10), 10u);
  EXPECT_EQ(book.NextRegular(11), 20u);
  EXPECT_EQ(BookOf({10, 20}).NextRegular(21), 30u);
  EXPECT_EQ(BookOf({13}).NextRegular(1), 20u);
}

TEST(CheckpointTracker, IsCompleteWhenEveryShardAndRankGavePart) {
  CheckpointTracker book = BookOf();
  book.Asked(10);
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 0), 12), kStart), Progress::kTaken)
      << "a part may arrive before shard 0 names the step";
  EXPECT_EQ(book.under_way(), 12u);
  book.Named(12);
  EXPECT_EQ(book.Add(PartOf("parameters.pt", 12), kStart), Progress::kTaken);
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 0), 12), kStart), Progress::kTaken)
      << "a repeated part is accepted";
  EXPECT_EQ(book.MissingParts(), "shard-0-term-0.state");
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 12), kStart), Progress::kComplete);
  EXPECT_EQ(book.parts().size(), 3u);
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 12), kStart), Progress::kIgnored)
      << "a checkpoint becomes complete only once";
  EXPECT_EQ(book.newest(), 0u) << "the checkpoint is not on disk yet";
  EXPECT_THAT(book.Written(), IsEmpty());
  EXPECT_EQ(book.newest(), 12u);
  EXPECT_EQ(book.under_way(), 0u);
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 0), 12), kStart), Progress::kIgnored)
      << "the part arrives too late";
}

TEST(CheckpointTracker, OldOnesGoWhenANewOneIsOnDisk) {
  CheckpointTracker book = BookOf();
  Complete(10, &book);
  EXPECT_THAT(book.Written(), IsEmpty());
  Complete(20, &book);
  EXPECT_THAT(book.Written(), IsEmpty());
  Complete(30, &book);
  EXPECT_THAT(book.Written(), ElementsAre(10));
}

TEST(CheckpointTracker, WhatSomebodyReadsStays) {
  CheckpointTracker book = BookOf({10, 20});
  book.Hold({10});
  Complete(30, &book);
  EXPECT_THAT(book.Written(), IsEmpty());
  Complete(40, &book);
  EXPECT_THAT(book.Written(), ElementsAre(20));
  EXPECT_TRUE(book.IsComplete(10));
  book.Hold({});
  Complete(50, &book);
  EXPECT_THAT(book.Written(), ElementsAre(10, 30));
}

TEST(CheckpointTracker, WhatWasGivenUpIsRemovedAgainAfterTheNextOne) {
  CheckpointTracker book = BookOf();
  protocol::CheckpointPart bad = PartOf(protocol::WorkerPartName(0, 0), 10);
  bad.error = "disk full";
  EXPECT_EQ(book.Add(bad, kStart), Progress::kFailed);
  book.Abandon();
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 10), kStart), Progress::kIgnored);
  EXPECT_EQ(book.NextRegular(5), 20u) << "step 10 is already over";
  Complete(20, &book);
  EXPECT_THAT(book.Written(), ElementsAre(10));
}

TEST(CheckpointTracker, ADiskThatStaysFullIsNoLeak) {
  CheckpointTracker book = BookOf();
  protocol::CheckpointPart bad = PartOf(protocol::WorkerPartName(0, 0), 0);
  bad.error = "disk full";
  for (bad.step = 10; bad.step <= 10000; bad.step += 10) {
    ASSERT_EQ(book.Add(bad, kStart), Progress::kFailed);
    book.Abandon();
  }
  Complete(10010, &book);
  EXPECT_EQ(book.Written().size(), 64u);
}

// In a rack, the parent job names checkpoints, so parts of a later step may have arrived already.
// The tracker must not remove files of steps after the completed one.
TEST(CheckpointTracker, InARackNothingIsRemovedOfStepsToCome) {
  CheckpointTracker book({.interval = 10, .keep = 2, .shards = 1, .in_rack = true}, {});
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 30), kStart), Progress::kTaken);
  book.Abandon();
  book.ResetForTerm(1);
  for (const uint64_t step : {20, 40}) {
    EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 1), step, 1), kStart), Progress::kTaken);
    EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 1), step, 1), kStart),
              Progress::kComplete);
    EXPECT_THAT(book.Written(),
                ElementsAreArray(step == 20 ? std::vector<uint64_t>() : std::vector<uint64_t>{30}));
  }
}

TEST(CheckpointTracker, OtherTermsAreNotMixed) {
  CheckpointTracker book = BookOf({10});
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 20), kStart), Progress::kTaken);
  book.ResetForTerm(1);
  EXPECT_EQ(book.under_way(), 0u);
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 0), 20), kStart), Progress::kIgnored);
  EXPECT_EQ(book.NextRegular(11), 20u) << "step 20 runs again in the new term";
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 1), 20, 1), kStart), Progress::kTaken);
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 1), 20, 1), kStart), Progress::kComplete);
  EXPECT_THAT(book.Written(), IsEmpty()) << "the files of term 0 are in the folder that is kept";
}

TEST(CheckpointTracker, ADamagedOneLeavesTheOneBefore) {
  CheckpointTracker book = BookOf({10, 20});
  book.Discard(book.newest());
  book.ResetForTerm(1);
  EXPECT_EQ(book.newest(), 10u);
  EXPECT_EQ(book.NextRegular(11), 20u);
}

TEST(CheckpointTracker, IsOverdueFromTheFirstPartOn) {
  CheckpointTracker book = BookOf();
  book.Asked(10);
  EXPECT_FALSE(book.Overdue(kStart + absl::Hours(9))) << "the step may be far away";
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 10), kStart), Progress::kTaken);
  EXPECT_FALSE(book.Overdue(kStart + absl::Seconds(60)));
  EXPECT_TRUE(book.Overdue(kStart + absl::Seconds(61)));
  book.Shift(absl::Seconds(5));
  EXPECT_FALSE(book.Overdue(kStart + absl::Seconds(61)));
}

// Out of lockstep, a rank may be hours behind the first rank that reports its part. The timeout
// must start with the last shard's part.
TEST(CheckpointTracker, OutOfLockstepIsOverdueFromTheLastShardOn) {
  CheckpointTracker book({.interval = 10,
                          .world_size = 2,
                          .shards = 2,
                          .patience = absl::Seconds(60),
                          .in_lockstep = false},
                         {});
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 0), 10), kStart), Progress::kTaken);
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(1, 0), 10), kStart), Progress::kTaken);
  const absl::Time later = kStart + absl::Hours(9);
  EXPECT_FALSE(book.Overdue(later));
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 10), later), Progress::kTaken);
  EXPECT_FALSE(book.Overdue(later + absl::Seconds(60)));
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 0), 10), later + absl::Seconds(30)),
            Progress::kTaken);
  EXPECT_TRUE(book.Overdue(later + absl::Seconds(61)))
      << "a repeated part does not extend the deadline";
}

TEST(CheckpointTracker, AFailureOfARankThatItDoesNotNeedCostsNothing) {
  CheckpointTracker book({.interval = 10, .world_size = 2}, {});
  EXPECT_FALSE(book.Expect({0}));
  EXPECT_EQ(book.Add(PartOf(protocol::ShardPartName(0, 0), 10), kStart), Progress::kTaken);
  protocol::CheckpointPart failed = PartOf(protocol::WorkerPartName(1, 0), 10);
  failed.error = "disk full";
  EXPECT_EQ(book.Add(failed, kStart), Progress::kIgnored);
  EXPECT_EQ(book.Add(PartOf(protocol::WorkerPartName(0, 0), 10), kStart), Progress::kComplete);
}

}  // namespace
}  // namespace sluice::server
