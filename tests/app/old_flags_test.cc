// SPDX-License-Identifier: Apache-2.0
// Tests that flags of release 0.1 still work, with a warning that gives their current names.
#include "app/old_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct Flags {
  Flags() {
    app.add_option("--http-listen", listen, "Where");
    app.add_flag("--http-tls", tls, "HTTPS");
    app.add_option("--http-host", hosts, "Names")->delimiter(',');
    app.add_option("--quality-interval", interval, "Steps")->capture_default_str();
    AddOldOption(&app, "--metrics-listen", "--http-listen", &listen);
    AddOldFlag(&app, "--metrics-tls", "--http-tls", &tls);
    AddOldOption(&app, "--metrics-host", "--http-host", &hosts)->delimiter(',');
    AddOldOption(&app, "--quality-every", "--quality-interval", &interval);
  }
  // Parses the words and returns the output on stderr.
  std::string Parse(std::vector<std::string> words) {
    // CLI11 takes the words in reverse order.
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    testing::internal::CaptureStderr();
    try {
      app.parse(reversed);
    } catch (const CLI::ParseError& error) {
      refused = error.what();
    }
    return testing::internal::GetCapturedStderr();
  }

  CLI::App app;
  std::string listen;
  bool tls = false;
  std::vector<std::string> hosts;
  int interval = 100;
  std::string refused;
};

TEST(OldFlags, SetWhatTheNewOnesSetAndNameThem) {
  Flags flags;
  const std::string said = flags.Parse(
      {"--metrics-listen", "a:1", "--metrics-tls", "--metrics-host", "x,y", "--quality-every=7"});
  EXPECT_EQ(flags.refused, "");
  EXPECT_EQ(flags.listen, "a:1");
  EXPECT_TRUE(flags.tls);
  EXPECT_THAT(flags.hosts, ElementsAre("x", "y"));
  EXPECT_EQ(flags.interval, 7);
  EXPECT_THAT(said, HasSubstr("warning: --metrics-listen is now called --http-listen; release 0.3 "
                              "no longer takes the old name\n"));
  EXPECT_THAT(said, HasSubstr("--http-tls"));
  EXPECT_THAT(said, HasSubstr("--http-host"));
  EXPECT_THAT(said, HasSubstr("--quality-interval"));
}

TEST(OldFlags, AreSilentAndHiddenWhereTheyAreNotUsed) {
  Flags flags;
  EXPECT_EQ(flags.Parse({"--http-listen", "a:1"}), "");
  EXPECT_EQ(flags.interval, 100);
  EXPECT_THAT(flags.app.help(), HasSubstr("--http-listen"));
  EXPECT_THAT(flags.app.help(), Not(HasSubstr("--metrics-listen")));
}

TEST(OldFlags, ExcludeTheNewOnes) {
  Flags flags;
  (void)flags.Parse({"--http-listen", "a:1", "--metrics-listen", "b:2"});
  EXPECT_THAT(flags.refused, HasSubstr("excludes"));
}

}  // namespace
}  // namespace sluice::app
