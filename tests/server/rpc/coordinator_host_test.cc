// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/coordinator_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "server/rpc/coordinator_start.h"
#include "tests/rpc/await.h"
#include "tests/rpc/host_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

// Counts its answers. The host's lock guards the count while the call waits.
struct CountingWaiter final : JoinWaiter {
  void Answer(const absl::StatusOr<protocol::JoinGrant>&) override { ++answers; }

  size_t answers = 0;
};

// A coordinator that cannot write its first record, because a folder is in the way.
class CoordinatorHostTest : public HostFixture {
 protected:
  CoordinatorHostTest() {
    job_.checkpoint.interval = 7;
    auto folder = RunFolder::Open(job_, Logger("test"));
    Check(folder.ok(), folder.status().message());
    const ServerOptions options{.job = job_, .job_uid = kHostJob};
    CoordinatorOptions coordinator = CoordinatorOptionsOf(options, folder->get());
    std::filesystem::create_directories(InTheWay());
    host_ = std::make_unique<CoordinatorHost>(std::move(coordinator), *std::move(folder), nullptr,
                                              &clock_, Logger("test"));
    AwaitThat([&] { return host_->Status().record_unwritten; });
  }
  std::string InTheWay() const { return job_.checkpoint.dir + "/run.json/in-the-way"; }
  // A worker of another job, whose refusal waits for the record.
  void JoinWrongly() {
    protocol::WorkerJoin join;
    join.job_name = "another";
    host_->Join(&waiters_.emplace_back(), std::move(join));
  }
  size_t Answered() const {
    return static_cast<size_t>(std::count_if(
        waiters_.begin(), waiters_.end(), [](const CountingWaiter& w) { return w.answers == 1; }));
  }

  std::deque<CountingWaiter> waiters_;
  std::unique_ptr<CoordinatorHost> host_;
};

TEST_F(CoordinatorHostTest, AFullQueueDoesNotHoldUpTheEndOfTheJob) {
  for (size_t i = 0; i <= EffectQueue::kWaitingMax; ++i) JoinWrongly();
  EXPECT_EQ(Answered(), 0u);
  host_->Fail("a test ends it");
  EXPECT_EQ(Answered(), waiters_.size());
  EXPECT_EQ(host_->Status().phase, protocol::JobPhase::kFailed);
  EXPECT_THAT(host_->Status().failure, HasSubstr("a test ends it"));
}

TEST_F(CoordinatorHostTest, AProcessThatStopsAnswersItsCalls) {
  JoinWrongly();
  host_.reset();
  EXPECT_EQ(Answered(), 1u);
}

TEST_F(CoordinatorHostTest, AnswersWaitUntilTheRecordIsDurable) {
  JoinWrongly();
  EXPECT_FALSE(host_->NumberShard().ok());
  EXPECT_EQ(Answered(), 0u);
  std::filesystem::remove_all(job_.checkpoint.dir + "/run.json");
  AwaitThat([&] { return host_->NumberShard().ok(); });
  host_.reset();  // Guards the count.
  EXPECT_EQ(Answered(), 1u);
}

}  // namespace
}  // namespace sluice::server
