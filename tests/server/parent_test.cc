// SPDX-License-Identifier: Apache-2.0
#include "server/parent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "job/file/job_file.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

class ParentTest : public ::testing::Test {
 protected:
  ParentTest() { EXPECT_EQ(::pipe(ends_), 0); }
  ~ParentTest() override {
    ::close(ends_[0]);
    End();
  }
  void Write(absl::string_view text) {
    while (!text.empty()) {
      const ssize_t wrote = ::write(ends_[1], text.data(), text.size());
      ASSERT_GT(wrote, 0);
      text.remove_prefix(static_cast<size_t>(wrote));
    }
  }
  void End() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

  int ends_[2];
};

TEST_F(ParentTest, AJobEndsWithALineOfDots) {
  Write("name: a\nseed: 1\n...\nrest");
  EXPECT_EQ(*ReadJobText(ends_[0]), "name: a\nseed: 1\n...\n");
  char rest[5] = {};
  EXPECT_EQ(::read(ends_[0], rest, 4), 4);
  EXPECT_STREQ(rest, "rest");
}

TEST_F(ParentTest, AJobEndsWithTheInput) {
  Write("name: ...a");
  End();
  EXPECT_EQ(*ReadJobText(ends_[0]), "name: ...a");
}

TEST_F(ParentTest, AJobHasALimit) {
  std::thread writer([&] { Write(std::string(job::kMaxJobFileSize + 1, 'x')); });
  const absl::Status status = ReadJobText(ends_[0]).status();
  writer.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has more than 1048576 bytes"));
}

TEST_F(ParentTest, HasEndedWhenTheOtherEndIsClosed) {
  EXPECT_FALSE(HasEnded(ends_[0]));
  Write("words that nobody asked for");
  EXPECT_FALSE(HasEnded(ends_[0]));
  Write("more");
  End();
  EXPECT_TRUE(HasEnded(ends_[0]));
}

}  // namespace
}  // namespace sluice::server
