// SPDX-License-Identifier: Apache-2.0
// Tests which contributions a guard finds, with made contributions of several ranks.
#include "server/shard/contribution_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "compress/codec_table.h"
#include "compress/frame.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr size_t kRanks = 5;
const std::vector<uint32_t> kCounts = {700, 500, 300};

// Gradients of all ranks share a direction and have noise of twice its norm. The bad rank changes
// its gradient by `change`.
using Change = std::function<float(float)>;

struct Ranks {
  std::vector<std::vector<std::string>> frames;
  std::vector<HeldContribution> contributions;
};

// Returns the contributions of all ranks to one bundle of one step.
Ranks Contribute(uint64_t step, uint32_t bundle, uint32_t bad, const Change& change,
                 const char* spec = "none") {
  Ranks out;
  const auto codec = compress::MakeCodec(*compress::ParseCodecSpec(spec));
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    std::vector<std::string>& frames = out.frames.emplace_back();
    for (size_t chunk = 0; chunk < kCounts.size(); ++chunk) {
      CounterRandom common(1, step, bundle, chunk);
      CounterRandom own(2 + rank, step, bundle, chunk);
      std::vector<float> gradient;
      for (uint32_t i = 0; i < kCounts[chunk]; ++i) {
        const double value = common.Uniform() - 0.5 + 2 * (own.Uniform() - 0.5);
        gradient.push_back(static_cast<float>(value));
        if (rank == bad) gradient.back() = change(gradient.back());
      }
      std::vector<std::byte> frame;
      EXPECT_TRUE(compress::EncodeFrame(*codec, {.gradient = gradient}, &frame).ok());
      frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
    }
  }
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    out.contributions.push_back({.rank = rank, .origin_step = step, .frames = out.frames[rank]});
  }
  return out;
}

constexpr size_t kBundles = 3;

// A guard of a shard with one bundle or with several.
ContributionGuard GuardWith(job::GuardPolicy policy, size_t ranks = kRanks, size_t bundles = 1) {
  static const auto* const all = new std::vector<protocol::Bundle>(kBundles);
  return {{.policy = policy}, 7, ranks, absl::MakeSpan(*all).first(bundles), /*fragments=*/1};
}

float Unchanged(float value) { return value; }
float Enlarged(float value) { return 100 * value; }
float Flipped(float value) { return -value; }

std::vector<float> JudgeOne(ContributionGuard* guard, uint64_t step, uint32_t bad,
                            const Change& change, const char* spec = "none") {
  const Ranks ranks = Contribute(step, 0, bad, change, spec);
  return guard->Judge(step, 0, kCounts, ranks.contributions);
}

TEST(ContributionGuard, LeavesEqualRanksAlone) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
  for (uint64_t step = 1; step <= 300; ++step) {
    EXPECT_THAT(JudgeOne(&guard, step, 0, Unchanged), IsEmpty());
    EXPECT_THAT(guard.EndStep(step), IsEmpty());
  }
  for (const RankAgreement& rank : guard.figures()) {
    EXPECT_NEAR(rank.norm_ratio, 1, 0.2);
    EXPECT_GT(rank.cosine, 0.2);
    EXPECT_EQ(rank.outliers, 0u);
    EXPECT_FALSE(rank.suspect);
  }
}

TEST(ContributionGuard, ClipsAnOutlierToTheMedianNormInItsFirstStep) {
  for (const char* const spec : {"none", "int8", "topk:10%+int4"}) {
    ContributionGuard guard = GuardWith(job::GuardPolicy::kClip);
    const std::vector<float> factors = JudgeOne(&guard, 1, 3, Enlarged, spec);
    ASSERT_THAT(factors, SizeIs(kRanks)) << spec;
    for (const size_t rank : {0, 1, 2, 4}) EXPECT_EQ(factors[rank], 1) << spec;
    EXPECT_NEAR(factors[3], 0.01, 0.001) << spec;
    EXPECT_EQ(guard.figures()[3].clipped, 1u);
    EXPECT_EQ(guard.figures()[3].left_out, 0u);
  }
}

TEST(ContributionGuard, SkipsAnOutlierAndNamesItOnce) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
  EXPECT_THAT(JudgeOne(&guard, 1, 3, Enlarged), ElementsAre(1, 1, 1, 0, 1));
  const std::vector<Notice> notices = guard.EndStep(1);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_THAT(notices[0].text, HasSubstr("rank 3 has 1"));
  EXPECT_THAT(notices[0].text, HasSubstr("it is left out"));
  EXPECT_EQ(notices[0].fields.rank, 3u);
  EXPECT_TRUE(guard.figures()[3].suspect);
  EXPECT_THAT(JudgeOne(&guard, 2, 3, Enlarged), ElementsAre(1, 1, 1, 0, 1));
  EXPECT_THAT(guard.EndStep(2), IsEmpty());
  EXPECT_EQ(guard.figures()[3].left_out, 2u);
}

TEST(ContributionGuard, OnlyCountsWithPolicyWarn) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kWarn);
  EXPECT_THAT(JudgeOne(&guard, 1, 3, Enlarged), IsEmpty());
  EXPECT_THAT(guard.EndStep(1), SizeIs(1));
  EXPECT_EQ(guard.figures()[3].outliers, 1u);
  EXPECT_EQ(guard.figures()[3].left_out + guard.figures()[3].clipped, 0u);
}

// An outlier in a chunk that the guard did not choose escapes at first, until the guard chooses
// that chunk. From then on, the guard measures whole bundles.
TEST(ContributionGuard, WatchesWholeBundlesAfterAnOutlier) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
  const auto one_chunk = [&](uint64_t step) {
    Ranks ranks = Contribute(step, 0, kRanks, Unchanged);
    ranks.frames[3][1] = Contribute(step, 0, 3, Enlarged).frames[3][1];
    ranks.contributions[3].frames = ranks.frames[3];
    return guard.Judge(step, 0, kCounts, ranks.contributions);
  };
  uint64_t step = 1;
  while (one_chunk(step).empty()) {
    guard.EndStep(step);
    ASSERT_LT(++step, 30u);
  }
  guard.EndStep(step);
  for (uint64_t after = 1; after <= 30; ++after) {
    EXPECT_THAT(one_chunk(step + after), ElementsAre(1, 1, 1, 0, 1));
    guard.EndStep(step + after);
  }
}

TEST(ContributionGuard, FindsAFlippedSignWithinTwentySteps) {
  for (const char* const spec : {"none", "int8", "topk:10%+int4"}) {
    ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
    for (uint64_t step = 1; step < 100; ++step) {
      ASSERT_THAT(JudgeOne(&guard, step, 2, Unchanged, spec), IsEmpty());
      ASSERT_THAT(guard.EndStep(step), IsEmpty());
    }
    uint64_t found = 0;
    for (uint64_t step = 100; step < 150; ++step) {
      JudgeOne(&guard, step, 2, Flipped, spec);
      const std::vector<Notice> notices = guard.EndStep(step);
      if (notices.empty()) continue;
      ASSERT_EQ(found, 0u) << spec << ": " << notices[0].text;
      EXPECT_THAT(notices[0].text, HasSubstr("rank 2 point against"));
      found = step;
    }
    EXPECT_LE(found, 120u) << spec;
    EXPECT_GE(found, 100u) << spec;
    EXPECT_THAT(JudgeOne(&guard, 150, 2, Flipped, spec), ElementsAre(1, 1, 0, 1, 1)) << spec;
  }
}

// A controller may give each rank its own codec.
TEST(ContributionGuard, ComparesRanksWithDifferentCodecs) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
  const char* const specs[kRanks] = {"none", "topk:20%", "int8", "fp8", "topk:20%+int4"};
  for (uint64_t step = 1; step <= 40; ++step) {
    Ranks ranks = Contribute(step, 0, 2, Flipped);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks.frames[rank] = Contribute(step, 0, 2, Flipped, specs[rank]).frames[rank];
      ranks.contributions[rank].frames = ranks.frames[rank];
    }
    guard.Judge(step, 0, kCounts, ranks.contributions);
    guard.EndStep(step);
  }
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(guard.figures()[rank].outliers, 0u) << specs[rank];
    EXPECT_EQ(guard.figures()[rank].opposes, rank == 2) << specs[rank];
  }
}

TEST(ContributionGuard, ARankThatAgreesAgainCountsAgain) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
  for (uint64_t step = 1; step <= 20; ++step) {
    JudgeOne(&guard, step, 2, Flipped);
    guard.EndStep(step);
  }
  ASSERT_TRUE(guard.figures()[2].opposes);
  std::vector<Notice> notices;
  for (uint64_t step = 21; notices.empty(); ++step) {
    ASSERT_LT(step, 60u);
    JudgeOne(&guard, step, 2, Unchanged);
    notices = guard.EndStep(step);
  }
  EXPECT_THAT(notices[0].text, HasSubstr("rank 2 no longer point against"));
  EXPECT_THAT(JudgeOne(&guard, 100, 2, Unchanged), IsEmpty());
}

// Bundles close in any order. What the guard decides must not depend on it.
TEST(ContributionGuard, DecidesTheSameInAnyOrderOfBundles) {
  ContributionGuard forwards = GuardWith(job::GuardPolicy::kSkip, kRanks, kBundles);
  ContributionGuard backwards = GuardWith(job::GuardPolicy::kSkip, kRanks, kBundles);
  // At first, rank 4 is hostile in one bundle, and rank 3 in a chunk that the guard may not look
  // at.
  const auto judge = [](ContributionGuard* guard, uint64_t step, uint32_t bundle) {
    const Change change = step >= 10 ? Flipped : bundle == 1 ? Enlarged : Unchanged;
    Ranks ranks = Contribute(step, bundle, 4, change);
    if (step < 10) ranks.frames[3][2] = Contribute(step, bundle, 3, Enlarged).frames[3][2];
    ranks.contributions[3].frames = ranks.frames[3];
    return guard->Judge(step, bundle, kCounts, ranks.contributions);
  };
  for (uint64_t step = 1; step <= 40; ++step) {
    std::map<uint32_t, std::vector<float>> one;
    std::map<uint32_t, std::vector<float>> other;
    for (const uint32_t bundle : {0, 1, 2}) one[bundle] = judge(&forwards, step, bundle);
    for (const uint32_t bundle : {2, 1, 0}) other[bundle] = judge(&backwards, step, bundle);
    EXPECT_EQ(one, other) << step;
    EXPECT_EQ(forwards.EndStep(step).size(), backwards.EndStep(step).size());
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(forwards.figures()[rank].cosine, backwards.figures()[rank].cosine);
      EXPECT_EQ(forwards.figures()[rank].opposes, backwards.figures()[rank].opposes);
    }
  }
  EXPECT_TRUE(forwards.figures()[4].opposes);
}

TEST(ContributionGuard, JudgesNothingWithoutAMajority) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip, 2);
  Ranks ranks = Contribute(1, 0, 1, Enlarged);
  EXPECT_THAT(guard.Judge(1, 0, kCounts, absl::MakeSpan(ranks.contributions).first(2)), IsEmpty());
  EXPECT_THAT(guard.EndStep(1), IsEmpty());
}

// A relay's contribution is the sum of several.
TEST(ContributionGuard, ComparesTheNormPerContribution) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
  Ranks ranks = Contribute(1, 0, 1, [](float value) { return 8 * value; });
  ranks.contributions[1].weight = 8;
  EXPECT_THAT(guard.Judge(1, 0, kCounts, ranks.contributions), IsEmpty());
  ranks.contributions[1].weight = 1;
  EXPECT_THAT(guard.Judge(2, 0, kCounts, ranks.contributions), ElementsAre(1, 0, 1, 1, 1));
}

TEST(ContributionGuard, ZerosAreNoOutliers) {
  ContributionGuard guard = GuardWith(job::GuardPolicy::kSkip);
  Ranks ranks = Contribute(1, 0, kRanks, Unchanged);
  const Ranks zeros = Contribute(1, 0, 0, [](float) { return 0.0f; });
  for (const size_t rank : {0, 1, 2}) ranks.contributions[rank].frames = zeros.frames[0];
  EXPECT_THAT(guard.Judge(1, 0, kCounts, ranks.contributions), IsEmpty());
}

}  // namespace
}  // namespace sluice::server
