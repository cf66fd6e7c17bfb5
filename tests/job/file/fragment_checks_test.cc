// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::HasSubstr;

TEST(FragmentChecks, EachExchangeOfAFragmentEndsBeforeTheNextBegins) {
  const auto problem = [](absl::string_view more) {
    return Problem(LoadLeastAnd(absl::StrCat("mode: local_sgd\nlocal_steps: 10\n", more)));
  };
  EXPECT_EQ(problem("fragments: 3\nfragment_delay: 2\nmerge_alpha: 0.5\n"), "");
  EXPECT_EQ(problem("fragments: 10\n"), "");
  EXPECT_EQ(problem("fragment_delay: 9\n"), "");
  EXPECT_THAT(problem("fragments: 11\n"), HasSubstr("fragments: is 11, and local_steps is 10"));
  EXPECT_THAT(problem("fragments: 3\nfragment_delay: 3\n"),
              HasSubstr("the next exchange begins after 3 of the steps"));
  EXPECT_THAT(problem("fragment_delay: 10\n"), HasSubstr("use at most 9"));
  EXPECT_THAT(problem("fragments: 2\nema_decay: 0.9\n"), HasSubstr("never have equal ones"));
  EXPECT_THAT(problem("fragments: 2\ncontrol: {policy: bandwidth}\n"),
              HasSubstr("bandwidth cannot measure exchanges of fragments"));
  EXPECT_EQ(problem("merge_alpha: 0.5\ncompression: {uplink: int4, downlink: topk:1%}\n"), "");
  EXPECT_THAT(problem("merge_alpha: 0.5\ncompression: {uplink: topk:1%+int4}\n"),
              HasSubstr("merge_alpha: keeps a part of each change"));
  EXPECT_THAT(Problem(LoadLeastAnd("fragments: 2\n")), HasSubstr("is a key of mode local_sgd"));
}

}  // namespace
}  // namespace sluice::job
