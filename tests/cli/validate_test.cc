// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Answer {
  int code;
  std::string out;
  std::string err;
};

Answer Validate(std::vector<std::string> set, const std::vector<std::string>& expected = {}) {
  std::ostringstream out, err;
  const std::string path = SLUICE_EXAMPLES "/fashion-mnist.yaml";
  const int code = ValidateCommand({path, std::move(set), false}, expected, out, err);
  return {code, out.str(), err.str()};
}

TEST(Validate, ShowsTheResolvedJob) {
  const Answer answer = Validate({"steps=7"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.err, IsEmpty());
  EXPECT_THAT(answer.out, HasSubstr("\nsteps: 7\n"));
  EXPECT_THAT(answer.out, HasSubstr("\nok: fashion-mnist"));
  EXPECT_THAT(answer.out, Not(HasSubstr("warning:")));
}

TEST(Validate, WarnsAndStaysWell) {
  const Answer answer = Validate({"compression.uplink=topk:1%/noef"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.out, HasSubstr("\nwarning: uplink "));
}

TEST(Validate, RefusesAJobThatIsNotAsExpected) {
  const std::vector<std::string> as_it_is = {"workers=4", "relays.workers=[1, 3]"};
  const Answer fits = Validate({"workers=4", "relays={workers: [1, 3], uplink: int8}"}, as_it_is);
  EXPECT_EQ(fits.code, 0) << fits.err;
  for (const char* other : {"workers=5", "relays.workers=[3, 1]", "relays.workers=[4]"}) {
    const Answer answer =
        Validate({"workers=4", "relays={workers: [1, 3], uplink: int8}"}, {"workers=4", other});
    EXPECT_EQ(answer.code, 2) << other;
    EXPECT_THAT(answer.out, IsEmpty());
    EXPECT_THAT(answer.err, HasSubstr(std::string("expected to have ") + other));
  }
  // This job has no relays.
  EXPECT_EQ(Validate({"workers=4"}, {"relays.workers=[1, 3]"}).code, 2);
}

TEST(Validate, TellsWhatBecomesOfTheMomentum) {
  const Answer answer = Validate({});
  EXPECT_THAT(answer.out,
              AllOf(HasSubstr("\nmomentum 0.5 (of 0.9): topk:1%+int4"), HasSubstr("lr x 5\n")));
  EXPECT_THAT(answer.out, HasSubstr("  delayed_momentum: auto\n"));
  EXPECT_THAT(Validate({"optimizer.delayed_momentum=0.9"}).out, Not(HasSubstr("(of 0.9)")));
}

TEST(Validate, ExitsWith2) {
  const Answer answer = Validate({"sed=1"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.out, IsEmpty());
  EXPECT_THAT(answer.err, HasSubstr("did you mean 'seed'"));
}

}  // namespace
}  // namespace sluice::cli
