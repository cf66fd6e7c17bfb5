// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/weights_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "tests/follow/rpc/served_weights.h"

namespace sluice::follow {
namespace {

using compress::ElementType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ElementType kHubType = ElementType::kBfloat16;

// Does nothing with what it could read.
class IdleReader final : public UpdateReader {
 public:
  void Wake(const std::optional<absl::Status>& /*end*/) override {
    MutexLock lock(&mutex_);
    ++wakes_;
    woken_.SignalAll();
  }
  void AwaitWake() {
    MutexLock lock(&mutex_);
    const int before = wakes_;
    while (wakes_ == before) woken_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar woken_;
  int wakes_ ABSL_GUARDED_BY(mutex_) = 0;
};

class WeightsHubTest : public testing::Test {
 protected:
  WeightsHubTest() { hub_.Begin(7, {{0, LayoutOfShard(parts_, 0)}}); }

  std::vector<std::byte> At(uint64_t step) const { return TypedShardAt(parts_, 0, step); }
  // Publishes a version and waits until followers can read it.
  void Publish(uint64_t step) {
    hub_.Offer(0, {.term = 1, .step = step}, kHubType, At(step));
    while (hub_.figures().newest_step < step) reader_.AwaitWake();
  }

  const ModelParts parts_ = *protocol::PartsOfWeights(SampleJob());
  WeightsHub hub_{{.types = {kHubType}, .followers_max = 2, .every = 3}, Logger("test")};
  IdleReader reader_;
};

TEST_F(WeightsHubTest, WantsNothingWithoutFollowers) {
  EXPECT_THAT(hub_.Wanted(3, /*is_last=*/false), IsEmpty());
  ASSERT_TRUE(hub_.Enter(&reader_, {.job_uid = 7}).ok());
  EXPECT_THAT(hub_.Wanted(3, /*is_last=*/false), ElementsAre(kHubType));
  EXPECT_THAT(hub_.Wanted(4, /*is_last=*/false), IsEmpty());  // Every third version is published.
  EXPECT_THAT(hub_.Wanted(4, /*is_last=*/true), ElementsAre(kHubType));
  hub_.Leave(&reader_);
  EXPECT_THAT(hub_.Wanted(6, /*is_last=*/false), IsEmpty());
}

TEST_F(WeightsHubTest, LeavesOutVersionsWhileItEncodes) {
  ASSERT_TRUE(hub_.Enter(&reader_, {.job_uid = 7}).ok());
  // Several versions at once: the hub cannot have encoded all of them.
  for (uint64_t step = 1; step <= 50; ++step) {
    hub_.Offer(0, {.term = 1, .step = step}, kHubType, At(step));
  }
  EXPECT_THAT(hub_.Wanted(51, /*is_last=*/false), IsEmpty());
  EXPECT_EQ(hub_.figures().skipped, 1U);
  while (hub_.figures().newest_step < 50) reader_.AwaitWake();
  // From now on, all shards have the multiples of six in common.
  EXPECT_THAT(hub_.Wanted(57, /*is_last=*/false), IsEmpty());
  EXPECT_THAT(hub_.Wanted(60, /*is_last=*/false), ElementsAre(kHubType));
  hub_.Leave(&reader_);
}

TEST_F(WeightsHubTest, MeasuresTheLargestLag) {
  ASSERT_TRUE(hub_.Enter(&reader_, {.job_uid = 7}).ok());
  Publish(3);
  IdleReader other;
  ASSERT_TRUE(hub_.Enter(&other, {.job_uid = 7}).ok());
  hub_.Received(&reader_, {.version = {.term = 1, .step = 3}}, 10);
  hub_.Received(&other, {.version = {.term = 1, .step = 3}}, 20);
  Publish(9);
  hub_.Received(&other, {.version = {.term = 1, .step = 9}}, 5);
  const FollowerFigures figures = hub_.figures();
  EXPECT_EQ(figures.followers, 2U);
  EXPECT_EQ(figures.lag_steps, 6U);
  EXPECT_EQ(figures.sent_bytes, 35U);
  EXPECT_EQ(figures.versions, 2U);
  hub_.Leave(&reader_);
  EXPECT_EQ(hub_.figures().lag_steps, 0U);
  hub_.Leave(&other);
}

TEST_F(WeightsHubTest, RefusalsNameTheKey) {
  IdleReader second, third;
  const absl::Status run = hub_.Enter(&reader_, {.job_uid = 8}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(run)) << run;
  const absl::Status shard = hub_.Enter(&reader_, {.job_uid = 7, .shard = 1}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(shard)) << shard;
  const absl::Status type =
      hub_.Enter(&reader_, {.job_uid = 7, .type = ElementType::kFloat32}).status();
  EXPECT_THAT(type.message(), HasSubstr("the job offers bf16 (followers.types)"));
  ASSERT_TRUE(hub_.Enter(&reader_, {.job_uid = 7}).ok());
  ASSERT_TRUE(hub_.Enter(&second, {.job_uid = 7}).ok());
  const absl::Status many = hub_.Enter(&third, {.job_uid = 7}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(many)) << many;
  EXPECT_THAT(many.message(), HasSubstr("followers.max_connected"));
  hub_.Leave(&reader_);
  hub_.Leave(&second);
}

TEST_F(WeightsHubTest, AnUpdateThatDoesNotFitAsksForAnAnchor) {
  ASSERT_TRUE(hub_.Enter(&reader_, {.job_uid = 7}).ok());
  const TensorLayout layout = LayoutOfShard(parts_, 0);
  const auto patch = [&](uint64_t from, uint64_t to) {
    return *EncodePatch({.base_version = from, .version = to}, layout, kHubType, At(from), At(to));
  };
  EXPECT_TRUE(hub_.Repeat(0, kHubType, 1, *EncodeAnchor(1, layout, kHubType, At(1))));
  EXPECT_TRUE(hub_.Repeat(0, kHubType, 1, patch(1, 2)));
  EXPECT_EQ(hub_.StateToContinue(0, kHubType)->version.step, 2U);
  EXPECT_TRUE(hub_.Repeat(0, kHubType, 1, patch(3, 4)));
  EXPECT_FALSE(hub_.StateToContinue(0, kHubType).has_value());
  EXPECT_FALSE(hub_.Repeat(0, kHubType, 1, patch(4, 5)));
  EXPECT_EQ(hub_.figures().newest_step, 2U);
  hub_.Leave(&reader_);
}

}  // namespace
}  // namespace sluice::follow
