// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/copy_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>
#include <vector>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CopyGateTest : public ::testing::Test {
 protected:
  // Returns a change that records `number`.
  std::function<void()> Change(int number) {
    return [this, number] { made_.push_back(number); };
  }
  // Defers a change of `bytes` from within a copy, which runs without the lock.
  bool Defer(int number, uint64_t bytes) {
    MutexLock lock(&mutex_);
    std::function<void()> change = Change(number);
    return gate_.Defer(&mutex_, bytes, &change);
  }

  Mutex mutex_;
  CopyGate gate_;
  std::vector<int> made_;
};

TEST_F(CopyGateTest, WithoutACopyTheCallerMakesItsChange) {
  EXPECT_FALSE(Defer(1, 100));
  MutexLock lock(&mutex_);
  std::function<void()> change = Change(2);
  EXPECT_FALSE(gate_.Defer(&mutex_, 0, &change));
  change();
  EXPECT_THAT(made_, ElementsAre(2)) << "the gate leaves the change to its caller";
}

TEST_F(CopyGateTest, ChangesOfACopyAreMadeAfterwardsInOrder) {
  MutexLock lock(&mutex_);
  gate_.LimitBytes(100);
  gate_.Run(&mutex_, [this] {
    EXPECT_TRUE(Defer(1, 60));
    EXPECT_TRUE(Defer(2, 40));
    EXPECT_TRUE(Defer(3, 0)) << "a change without bytes never waits";
    EXPECT_THAT(made_, IsEmpty());
  });
  EXPECT_FALSE(gate_.copying());
  EXPECT_THAT(made_, IsEmpty());
  gate_.RunDeferred();
  EXPECT_THAT(made_, ElementsAre(1, 2, 3));
}

TEST_F(CopyGateTest, AChangeThatCopiesDefersOthersBehindTheRemainingOnes) {
  MutexLock lock(&mutex_);
  gate_.LimitBytes(100);
  gate_.Run(&mutex_, [this] {
    MutexLock inner(&mutex_);
    std::function<void()> copies = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      made_.push_back(1);
      gate_.Run(&mutex_, [this] { EXPECT_TRUE(Defer(3, 1)); });
    };
    EXPECT_TRUE(gate_.Defer(&mutex_, 1, &copies));
    std::function<void()> second = Change(2);
    EXPECT_TRUE(gate_.Defer(&mutex_, 1, &second));
  });
  gate_.RunDeferred();
  EXPECT_THAT(made_, ElementsAre(1, 2, 3));
}

TEST_F(CopyGateTest, AChangeBeyondTheLimitWaitsForTheCopyAndIsNotDeferred) {
  std::promise<void> begun, end, asking;
  std::thread copier([&] {
    MutexLock lock(&mutex_);
    gate_.LimitBytes(100);
    gate_.Run(&mutex_, [&] {
      begun.set_value();
      end.get_future().wait();
    });
    gate_.RunDeferred();
  });
  begun.get_future().wait();
  EXPECT_TRUE(Defer(1, 100));
  std::future<bool> deferred = std::async(std::launch::async, [&] {
    MutexLock lock(&mutex_);
    asking.set_value();
    std::function<void()> change = Change(2);
    return gate_.Defer(&mutex_, 1, &change);
  });
  asking.get_future().wait();
  {
    MutexLock lock(&mutex_);  // The lock is free once the change waits, or was deferred by mistake.
  }
  end.set_value();
  EXPECT_FALSE(deferred.get());
  copier.join();
  EXPECT_THAT(made_, ElementsAre(1));
}

TEST_F(CopyGateTest, BytesAreFreeAgainOnceTheChangesAreMade) {
  MutexLock lock(&mutex_);
  gate_.LimitBytes(100);
  for (int copy = 0; copy < 2; ++copy) {
    gate_.Run(&mutex_, [this, copy] { EXPECT_TRUE(Defer(copy, 100)); });
    gate_.RunDeferred();
  }
  EXPECT_THAT(made_, ElementsAre(0, 1));
}

}  // namespace
}  // namespace sluice::server
