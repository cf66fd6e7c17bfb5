// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/temporary_folder.h"

namespace sluice::net {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kOld(16, 'o');
const std::string kNew(64, 'n');

std::string Refusal(const std::string& text) {
  const absl::StatusOr<std::vector<std::string>> tokens = ParseTokens(text, "FILE");
  EXPECT_TRUE(absl::IsInvalidArgument(tokens.status())) << text;
  return std::string(tokens.status().message());
}

TEST(ParseTokens, OneOrTwoLinesWithSpaceAround) {
  EXPECT_THAT(*ParseTokens(kOld, "FILE"), ElementsAre(kOld));
  EXPECT_THAT(*ParseTokens("\n " + kNew + " \r\n\n" + kOld + "\n\n", "FILE"),
              ElementsAre(kNew, kOld));
  EXPECT_TRUE(ParseTokens(std::string(4096, 'x'), "FILE").ok());
}

TEST(ParseTokens, RefusesTheRestAndNeverShowsIt) {
  EXPECT_THAT(Refusal(""), AllOf(HasSubstr("FILE is empty"), HasSubstr("openssl rand -hex 32")));
  EXPECT_THAT(Refusal("secret"),
              AllOf(HasSubstr("token 1 in FILE has 6 bytes"), Not(HasSubstr("secret"))));
  EXPECT_THAT(Refusal(std::string(4097, 'x')), HasSubstr("has 4097 bytes"));
  EXPECT_THAT(Refusal(kNew + "\nsecret secret secret"),
              AllOf(HasSubstr("token 2 in FILE has bytes other"), Not(HasSubstr("secret"))));
  EXPECT_THAT(Refusal(kOld + "\n" + kOld + "\n" + kOld), HasSubstr("token 3 in FILE is one too"));
}

TEST(TokenFile, TakesEitherLineAndShowsTheFirst) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("token", kNew + "\n" + kOld + "\n");
  const auto token = TokenFile::Open(path, Logger("test"));
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ((*token)->Own(), kNew);
  EXPECT_TRUE((*token)->Accepts(kNew));
  EXPECT_TRUE((*token)->Accepts(kOld));
  EXPECT_FALSE((*token)->Accepts(""));
  EXPECT_FALSE((*token)->Accepts(kOld.substr(1)));
  EXPECT_FALSE((*token)->Accepts(kOld + "o"));
  EXPECT_FALSE((*token)->Accepts(std::string(16, 'x')));
}

TEST(TokenFile, AChangeCountsAtOnceAndALostFileChangesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("token", kOld);
  const auto token = TokenFile::Open(path, Logger("test"));
  ASSERT_TRUE(token.ok()) << token.status();
  folder.Write("token", kNew);
  EXPECT_TRUE((*token)->Accepts(kNew));
  EXPECT_FALSE((*token)->Accepts(kOld));
  std::filesystem::remove(path);
  EXPECT_EQ((*token)->Own(), kNew);
  folder.Write("token", "short");
  EXPECT_TRUE((*token)->Accepts(kNew));
  EXPECT_FALSE((*token)->Accepts("short"));
}

TEST(TokenFile, AFileThatIsNotThereIsNamed) {
  const auto token = TokenFile::Open("/nowhere/token", Logger("test"));
  EXPECT_THAT(std::string(token.status().message()),
              HasSubstr("--token-file: cannot read /nowhere/token (No such file"));
}

}  // namespace
}  // namespace sluice::net
