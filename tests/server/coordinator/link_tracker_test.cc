// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/link_tracker.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

namespace sluice::server {
namespace {

constexpr double kRate = 12.5e6;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

protocol::LinkPeriod Period(uint64_t bytes, double rate) {
  return {.bytes = bytes, .seconds = static_cast<double>(bytes) / rate};
}

TEST(LinkTracker, TellsRateAndLatencyApartEachWay) {
  LinkTracker book(2);
  EXPECT_EQ(book.Stats().ranks.at(1).up_rate, 0);
  for (uint64_t step = 1; step <= 20; ++step) {
    book.Report(1, {Period(1'000'000, kRate), Period(20'000, kRate)},
                {.step = step,
                 .round_trip_s = 0.04,
                 .down = {Period(500'000, 2 * kRate), Period(100'000, 2 * kRate)}});
  }
  const protocol::LinkFigures link = book.Stats().ranks.at(1);
  EXPECT_NEAR(link.up_rate / kRate, 1, 0.02);
  EXPECT_NEAR(link.down_rate / kRate, 2, 0.04);
  EXPECT_NEAR(link.up_latency_s, 0.02, 0.001);
  EXPECT_NEAR(link.down_latency_s, 0.02, 0.001);
  EXPECT_EQ(book.Stats().ranks.at(0).up_rate, 0) << "rank 0 has reported nothing";
}

// Out of lockstep, no rank waits, so no rank is late. The tracker must use the last step of each
// rank, even if a slow rank's is older than the others'.
TEST(LinkTracker, AtTheirOwnPaceTheLastStepOfEachCounts) {
  LinkTracker book(2, /*lockstep=*/false);
  const auto report = [&](uint32_t rank, uint64_t step, double compute) {
    book.Arrived(rank, step, At(static_cast<double>(step)), absl::ZeroDuration());
    book.Report(rank, {Period(1'000'000, kRate)},
                {.step = step, .round_trip_s = 0.001, .compute_s = compute});
  };
  for (uint64_t step = 1; step <= 30; ++step) report(0, step, 0.1 * static_cast<double>(step));
  EXPECT_FALSE(book.TakeStep().has_value());
  report(1, 1, 7);
  const std::optional<StepMeasurements> measured = book.TakeStep();
  ASSERT_TRUE(measured.has_value());
  EXPECT_DOUBLE_EQ(measured->ranks[0].compute_s, 3);
  EXPECT_DOUBLE_EQ(measured->ranks[1].compute_s, 7);
  EXPECT_EQ(measured->ranks[0].arrival_s, 0);
  EXPECT_EQ(book.Stats().ranks[1].compute_late_s, 0);
  report(1, 2, 7);
  EXPECT_FALSE(book.TakeStep().has_value()) << "rank 0 has reported nothing since";
}

TEST(LinkTracker, NobodyWaitsForTheReportOfWhoIsNotThere) {
  LinkTracker book(3);
  const auto report = [&](uint32_t rank, uint64_t step, double came) {
    book.Arrived(rank, step, At(came), absl::ZeroDuration());
    book.Report(rank, {}, {.step = step, .compute_s = 1.0 + rank});
  };
  book.SetPresent({{7, 0, 8}});
  report(0, 1, 0);
  EXPECT_FALSE(book.TakeStep().has_value());
  report(2, 1, 0.5);
  const std::optional<StepMeasurements> measured = book.TakeStep();
  ASSERT_TRUE(measured.has_value());
  ASSERT_EQ(measured->ranks.size(), 3u);
  EXPECT_EQ(measured->ranks[1].compute_s, 1) << "an absent rank gets rank 0's time";
  EXPECT_EQ(measured->ranks[2].compute_s, 3);
  EXPECT_EQ(book.Stats().ranks[1].compute_late_s, 0);
  EXPECT_GT(book.Stats().ranks[2].compute_late_s, 0);
  book.SetPresent({{7, 9, 8}});
  report(0, 2, 1);
  report(2, 2, 1);
  EXPECT_FALSE(book.TakeStep().has_value()) << "rank 1 is present and has not reported";
  report(1, 2, 1);
  EXPECT_TRUE(book.TakeStep().has_value());
}

TEST(LinkTracker, AStepCountsOnceAndOnlyOfRanksThatThereAre) {
  LinkTracker book(1);
  for (uint64_t step = 1; step <= 5; ++step) {
    book.Report(0, {Period(1'000'000, kRate)}, {.step = step, .round_trip_s = 0.001});
  }
  const double before = book.Stats().ranks.at(0).up_rate;
  for (int i = 0; i < 20; ++i) {
    book.Report(0, {Period(1'000'000, kRate / 50)}, {.step = 5, .round_trip_s = 0.001});
  }
  EXPECT_EQ(book.Stats().ranks.at(0).up_rate, before);
  book.Report(7, {Period(1'000'000, kRate)}, {.step = 9, .round_trip_s = 0.001});
  book.Arrived(7, 9, At(1), absl::ZeroDuration());
  EXPECT_EQ(book.Stats().ranks.size(), 1);
}

TEST(LinkTracker, WithoutARoundTripNothingIsTakenForALink) {
  LinkTracker book(1);
  book.Report(0, {Period(1'000'000, kRate)}, {.step = 1});
  EXPECT_EQ(book.Stats().ranks.at(0).up_rate, 0);
}

TEST(LinkTracker, CountsHowLongRequestsWait) {
  LinkTracker book(1);
  book.Arrived(0, 1, At(1), absl::Microseconds(20));
  book.Arrived(0, 1, At(1), absl::Milliseconds(20));
  book.Arrived(0, 1, At(1), absl::Seconds(20));
  book.Arrived(0, 1, At(1), absl::Seconds(-1));  // A negative time counts as zero.
  const LinkStats stats = book.Stats();
  EXPECT_NEAR(stats.queue_seconds, 20.02002, 1e-9);
  EXPECT_EQ(std::accumulate(stats.queue_counts.begin(), stats.queue_counts.end(), uint64_t{0}), 4);
  EXPECT_EQ(stats.queue_counts.front(), 1);
  EXPECT_EQ(stats.queue_counts.back(), 1);
}

// Runs a step in which rank 1 computes 0.3 s longer than rank 0 and rank 2 has a slow link.
void DoStep(LinkTracker* book, uint64_t step) {
  const double begin = 10 * static_cast<double>(step);
  for (const auto& [rank, late] : {std::pair{0u, 0.0}, {1u, 0.35}, {2u, 0.5}}) {
    book->Arrived(rank, step, At(begin + late - 0.2), absl::ZeroDuration());
    book->Arrived(rank, step, At(begin + late), absl::ZeroDuration());
  }
  // The first requests of the next step contain the reports. They arrive in any order, after part
  // of that step is done.
  for (const auto& [rank, compute] : {std::pair{2u, 0.1}, {0u, 0.1}, {1u, 0.4}}) {
    book->Report(rank, {}, {.step = step, .compute_s = compute});
    book->Arrived(rank, step + 1, At(begin + 1), absl::ZeroDuration());
  }
}

TEST(LinkTracker, SplitsLatenessIntoComputingAndTheNetwork) {
  LinkTracker book(3);
  for (uint64_t step = 1; step <= 4; ++step) DoStep(&book, step);
  const std::vector<protocol::LinkFigures> ranks = book.Stats().ranks;
  EXPECT_NEAR(ranks[0].compute_late_s + ranks[0].network_late_s, 0, 1e-6);
  EXPECT_NEAR(ranks[1].compute_late_s, 4 * 0.3, 1e-6);
  EXPECT_NEAR(ranks[1].network_late_s, 4 * 0.05, 1e-6);
  EXPECT_NEAR(ranks[2].compute_late_s, 0, 1e-6);
  EXPECT_NEAR(ranks[2].network_late_s, 4 * 0.5, 1e-6);
}

TEST(LinkTracker, ARollbackMixesNoStepsOfBeforeAndAfter) {
  LinkTracker book(2);
  book.Arrived(0, 7, At(1), absl::ZeroDuration());
  book.Report(0, {}, {.step = 7});  // Rank 1 sends no report.
  book.Rewind();
  for (const uint32_t rank : {0u, 1u}) book.Arrived(rank, 7, At(500), absl::ZeroDuration());
  for (const uint32_t rank : {0u, 1u}) book.Report(rank, {}, {.step = 7});
  for (const protocol::LinkFigures& rank : book.Stats().ranks) {
    EXPECT_EQ(rank.compute_late_s + rank.network_late_s, 0);
  }
}

// If a rank never reports, the tracker must not keep the steps of the other ranks forever.
TEST(LinkTracker, StepsThatNotAllReportAreForgotten) {
  LinkTracker book(2);
  for (uint64_t step = 1; step < 1000; ++step) {
    book.Arrived(0, step, At(static_cast<double>(step)), absl::ZeroDuration());
    book.Report(0, {}, {.step = step});
  }
  book.Arrived(1, 3, At(5000), absl::ZeroDuration());
  book.Report(1, {}, {.step = 3});
  EXPECT_EQ(book.Stats().ranks.at(1).network_late_s, 0);
}

}  // namespace
}  // namespace sluice::server
