#include "cli/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Answer {
  int code;
  std::string out;
  std::string err;
};

Answer Validate(std::vector<std::string> set) {
  std::ostringstream out, err;
  const std::string path = SLUICE_EXAMPLES "/fashion-mnist.yaml";
  const int code = ValidateCommand({path, std::move(set), false}, out, err);
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
  const Answer answer = Validate({"optimizer.momentum=0.9"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.out, HasSubstr("\nwarning: uplink "));
}

TEST(Validate, ExitsWith2) {
  const Answer answer = Validate({"sed=1"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.out, IsEmpty());
  EXPECT_THAT(answer.err, HasSubstr("did you mean 'seed'"));
}

}  // namespace
}  // namespace sluice
