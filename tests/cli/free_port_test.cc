#include "cli/free_port.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(FreePortTest, TwoHeldOnesDiffer) {
  const absl::StatusOr<FreePort> first = FreePort::Reserve();
  const absl::StatusOr<FreePort> second = FreePort::Reserve();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->port(), 0);
  EXPECT_NE(first->port(), second->port());
}

TEST(FreePortTest, ATakenOneIsAnErrorUntilItIsReleased) {
  absl::StatusOr<FreePort> holder = FreePort::Reserve();
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(FreePort::Reserve(holder->port()).status().code(), absl::StatusCode::kAlreadyExists);
  holder->Release();
  const absl::StatusOr<FreePort> again = FreePort::Reserve(holder->port());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->port(), holder->port());
}

}  // namespace
}  // namespace sluice
