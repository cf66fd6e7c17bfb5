// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace sluice {
namespace {

TEST(DescriptorsTest, TheSoftLimitBecomesTheHardOne) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const uint64_t hard = limit.rlim_max;
  ASSERT_GT(hard, 100u);
  limit.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(DescriptorLimit(), 100u);
  const DescriptorLimits raised = RaiseDescriptorLimit();
  EXPECT_EQ(raised.before, 100u);
  EXPECT_EQ(raised.now, hard);
  EXPECT_EQ(RaiseDescriptorLimit().before, hard);
}

}  // namespace
}  // namespace sluice
