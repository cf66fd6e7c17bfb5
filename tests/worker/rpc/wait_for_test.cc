// SPDX-License-Identifier: Apache-2.0
// Tests Session::WaitFor, including a wait that another thread interrupts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "tests/worker/rpc/fake_server.h"
#include "tests/worker/rpc/joined_session.h"

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;

protocol::TensorTable OneTensor() {
  return {{.name = "w", .shape = {8}, .strides = {}, .dtype = protocol::DType::kFloat32}};
}

RemoteSessionOptions Options(const FakeServer& server) {
  RemoteSessionOptions options;
  options.coordinator = server.address();
  options.job_name = "test";
  options.exchange.compression.min_elements = 0;
  return options;
}

TEST(WaitFor, GivesTheResultOfAStepThatCloses) {
  const std::vector<float> gradient(8, 1.5f);
  FakeServer server({});
  const JoinedSession session(Options(server), OneTensor());
  ASSERT_TRUE(session.ok()) << session.status();
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(session->Submit(0, gradient).ok());
    std::optional<StepResult> result;
    while (!result.has_value()) {
      const absl::StatusOr<std::optional<StepResult>> now = session->WaitFor(absl::Seconds(1));
      ASSERT_TRUE(now.ok()) << now.status();
      result = *now;
    }
    EXPECT_EQ(result->step, step);
    EXPECT_EQ(result->n_min, 1u);
  }
  EXPECT_EQ(session->traffic().steps, 3u);
}

TEST(WaitFor, ReturnsNoneWhileTheStepIsOpen) {
  const std::vector<float> gradient(8, 1.5f);
  FakeServer server({.silent = true});
  const JoinedSession session(Options(server), OneTensor());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Submit(0, gradient).ok());
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<std::optional<StepResult>> none = session->WaitFor(absl::Milliseconds(1));
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_FALSE(none->has_value());
  }
  // The step is still open, so it cannot begin again.
  EXPECT_FALSE(session->Submit(0, gradient).ok());
}

TEST(WaitFor, AnotherThreadEndsAWait) {
  const std::vector<float> gradient(8, 1.5f);
  FakeServer server({.silent = true});
  const JoinedSession session(Options(server), OneTensor());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Submit(0, gradient).ok());
  std::thread watcher([&] { session->Abandon("interrupted by the user"); });
  const absl::Status status = session->WaitFor(absl::InfiniteDuration()).status();
  watcher.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("interrupted by the user"));
}

}  // namespace
}  // namespace sluice::worker
