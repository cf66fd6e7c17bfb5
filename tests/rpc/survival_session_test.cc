// SPDX-License-Identifier: Apache-2.0
// Tests with real sessions, servers and folders that, after any loss, training ends with the
// parameters of an undisturbed run, bit for bit.
#include "tests/rpc/survival_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/ascii.h"

namespace sluice {
namespace {

TEST_P(SurvivalTest, CheckpointsAloneChangeNothing) {
  const Parameters expected = Undisturbed();
  bool called = false;
  EXPECT_EQ(Run([&] { called = true; }), expected);
  EXPECT_TRUE(called);
  EXPECT_FALSE(restored_);
}

TEST_P(SurvivalTest, AShardThatIsLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(1); }), expected);
  EXPECT_FALSE(restored_);  // The workers continued without a restore.
  ExpectRepaired();
}

TEST_P(SurvivalTest, TheCoordinatorThatIsLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(0); }), expected);
  EXPECT_FALSE(restored_);
  ExpectRepaired();
}

TEST_P(SurvivalTest, AWorkerThatIsLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { lose_worker_ = true; }), expected);
  EXPECT_TRUE(restored_);
  ExpectRepaired();
}

TEST_P(SurvivalTest, AWorkerAndAShardThatAreLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] {
              lose_worker_ = true;
              servers_.Restart(1);
            }),
            expected);
  EXPECT_TRUE(restored_);
  ExpectRepaired();
}

TEST_P(SurvivalTest, ACheckpointThatIsAwayWhenItIsNeeded) {
  const Parameters expected = Undisturbed();
  std::thread mender;
  EXPECT_EQ(Run([&] {
              const std::string folder =
                  protocol::StepFolder(job_.checkpoint.dir, NewestCheckpoint());
              const std::string away = absl::StrCat(servers_.folder(), "/away");
              std::filesystem::rename(folder, away);
              servers_.Restart(1);
              mender = std::thread([this, folder, away] {
                AwaitThat([this] { return FailingReads() > 0; });
                std::filesystem::rename(away, folder);
              });
            }),
            expected);
  mender.join();
  EXPECT_FALSE(restored_);  // The workers continued without a restore.
  ExpectRepaired();
}

TEST_P(SurvivalTest, WhereNothingIsKeptTheJobGoesBack) {
  replay_limit_ = 0;
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(1); }), expected);
  EXPECT_TRUE(restored_);
  EXPECT_GE(rollbacks_, 1u);
  EXPECT_EQ(repairs_, 0u);
}

TEST_P(SurvivalTest, AShardAndTheNewestCheckpoint) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] {
              const uint64_t step = NewestCheckpoint();
              std::ofstream(absl::StrCat(protocol::StepFolder(job_.checkpoint.dir, step), "/",
                                         protocol::ShardPartName(1, 0)),
                            std::ios::app)
                  << "x";
              servers_.Restart(1);
            }),
            expected);
  EXPECT_TRUE(restored_);
}

// With the thread sanitizer, one codec for each kind of state is enough, because the saving of a
// codec's state does not depend on threads.
#ifdef SLUICE_THREAD_SANITIZED
constexpr const char* kTested[] = {"topk:5%+int4/ef", "topk:5%/ef21"};
#else
constexpr const char* kTested[] = {"topk:5%+int4/ef", "intsum:4", "topk:5%/ef21", "countsketch:5x"};
#endif

INSTANTIATE_TEST_SUITE_P(Codecs, SurvivalTest, ::testing::ValuesIn(kTested), [](const auto& test) {
  const absl::string_view spec = test.param;
  std::string name;
  for (const char c : spec) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) name.push_back(c);
  }
  return name;
});

}  // namespace
}  // namespace sluice
