// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Returns the wait status of a process that exited with this code.
constexpr int Exited(int code) { return code << 8; }

TEST(CallsForRestartTest, SignalsAndLostPeersOnly) {
  EXPECT_TRUE(CallsForRestart(SIGKILL));
  EXPECT_TRUE(CallsForRestart(SIGSEGV));
  EXPECT_TRUE(CallsForRestart(Exited(75)));
  for (const int code : {0, 1, 2, 127, 137}) EXPECT_FALSE(CallsForRestart(Exited(code))) << code;
}

TEST(RestartPolicyTest, WaitsLongerEachTimeAndThenNoMore) {
  RestartPolicy policy;
  absl::Time now = absl::UnixEpoch();
  std::vector<int64_t> delays_ms;
  while (const std::optional<absl::Duration> delay = policy.OnDeath("worker 0", now)) {
    delays_ms.push_back(absl::ToInt64Milliseconds(*delay));
    now += *delay + absl::Seconds(1);
  }
  EXPECT_THAT(delays_ms, ElementsAre(200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000));
  EXPECT_EQ(policy.total(), 10u);
}

TEST(RestartPolicyTest, ProcessesAreCountedApart) {
  RestartPolicy policy({.restarts_max = 1});
  const absl::Time now = absl::UnixEpoch();
  EXPECT_TRUE(policy.OnDeath("worker 0", now).has_value());
  EXPECT_EQ(policy.OnDeath("shard 0", now), absl::Milliseconds(200));
  EXPECT_FALSE(policy.OnDeath("worker 0", now).has_value());
  EXPECT_THAT(policy.restarts(), ElementsAre(Pair("shard 0", 1), Pair("worker 0", 1)));
}

TEST(RestartPolicyTest, TenQuietMinutesAreForgiven) {
  RestartPolicy policy({.restarts_max = 2});
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(policy.OnDeath("w", now), absl::Milliseconds(200));
  now += absl::Minutes(10);
  // The ten minutes count from the restart, which follows the death after the delay.
  EXPECT_EQ(policy.OnDeath("w", now), absl::Milliseconds(400));
  EXPECT_FALSE(policy.OnDeath("w", now + absl::Minutes(10)).has_value());
  EXPECT_EQ(policy.OnDeath("w", now + absl::Minutes(11)), absl::Milliseconds(200));
  EXPECT_EQ(policy.restarts().at("w"), 3u);
}

}  // namespace
}  // namespace sluice::cli
