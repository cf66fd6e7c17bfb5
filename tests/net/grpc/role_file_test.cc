// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/role_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/temporary_folder.h"

namespace sluice::net {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kWorkerToken(16, 't');
const std::string kOtherToken(16, 'o');

std::string RefusedRoles(const std::string& text) {
  const absl::StatusOr<std::vector<RoleLine>> lines = ParseRoles(text, "FILE");
  EXPECT_TRUE(absl::IsInvalidArgument(lines.status())) << text;
  return std::string(lines.status().message());
}

TEST(ParseRoles, ReadsTokensNamesAndAnyone) {
  const absl::StatusOr<std::vector<RoleLine>> lines =
      ParseRoles(absl::StrCat("# a comment\n\n worker\ttoken  ", kWorkerToken,
                              " \r\nserver name a.svc\n", "observer anyone\n"),
                 "FILE");
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines, ElementsAre(RoleLine{Role::kWorker, RoleLine::Kind::kToken, kWorkerToken},
                                  RoleLine{Role::kServer, RoleLine::Kind::kName, "a.svc"},
                                  RoleLine{Role::kObserver, RoleLine::Kind::kAnyone, ""}));
}

TEST(ParseRoles, NamesTheLineOfAnErrorAndNeverShowsAToken) {
  EXPECT_THAT(RefusedRoles("# nothing\n"), HasSubstr("FILE gives no role"));
  EXPECT_THAT(RefusedRoles("worker anyone\nboss anyone"),
              AllOf(HasSubstr("line 2 of FILE begins with an unknown role"),
                    HasSubstr("observer, worker, server, follower, administrator")));
  EXPECT_THAT(RefusedRoles("worker token secret"),
              AllOf(HasSubstr("line 1 of FILE has 6 bytes"), Not(HasSubstr("secret"))));
  for (const char* line : {"worker", "worker secret-secret-1", "worker token",
                           "worker token secret secret", "worker name", "worker anyone secret"}) {
    EXPECT_THAT(RefusedRoles(line),
                AllOf(HasSubstr("`ROLE token TOKEN`"), Not(HasSubstr("secret"))));
  }
  std::string many;
  for (size_t i = 0; i <= kRoleLinesMax; ++i) absl::StrAppend(&many, "worker name a\n");
  EXPECT_THAT(RefusedRoles(many), HasSubstr("line 1025 of FILE is one too many"));
}

TEST(RoleFile, AClientHasTheRolesOfAllLinesThatApply) {
  const TemporaryFolder folder;
  const std::string path = folder.Write(
      "roles", absl::StrCat("worker token ", kWorkerToken, "\nserver name a\nadministrator token ",
                            kOtherToken, "\nfollower token ", kWorkerToken, "\n"));
  const auto roles = RoleFile::Open(path, Logger("test"));
  ASSERT_TRUE(roles.ok()) << roles.status();
  EXPECT_EQ((*roles)->RolesOf(kWorkerToken, {}), (Roles{Role::kWorker, Role::kFollower}));
  EXPECT_EQ((*roles)->RolesOf(kOtherToken, {"a"}), (Roles{Role::kAdministrator, Role::kServer}));
  EXPECT_EQ((*roles)->RolesOf("", {"b", "a"}), Roles{Role::kServer});
  EXPECT_TRUE((*roles)->RolesOf("", {}).empty());
  EXPECT_TRUE((*roles)->RolesOf("a", {kWorkerToken}).empty()) << "a name is no token";
  EXPECT_TRUE((*roles)->RolesOf(kWorkerToken.substr(1), {}).empty());
}

TEST(RoleFile, AnyoneIncludesClientsWithoutCredentials) {
  const TemporaryFolder folder;
  const auto roles = RoleFile::Open(
      folder.Write("roles", absl::StrCat("observer anyone\nworker token ", kWorkerToken)),
      Logger("test"));
  ASSERT_TRUE(roles.ok()) << roles.status();
  EXPECT_EQ((*roles)->RolesOf("", {}), Roles{Role::kObserver});
  EXPECT_EQ((*roles)->RolesOf(kWorkerToken, {}), (Roles{Role::kObserver, Role::kWorker}));
}

TEST(RoleFile, AChangeCountsAtOnceAndALostFileChangesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("roles", absl::StrCat("worker token ", kWorkerToken));
  const auto roles = RoleFile::Open(path, Logger("test"));
  ASSERT_TRUE(roles.ok()) << roles.status();
  folder.Write("roles", absl::StrCat("worker token ", kOtherToken));
  EXPECT_TRUE((*roles)->RolesOf(kWorkerToken, {}).empty());
  EXPECT_EQ((*roles)->RolesOf(kOtherToken, {}), Roles{Role::kWorker});
  std::filesystem::remove(path);
  EXPECT_EQ((*roles)->RolesOf(kOtherToken, {}), Roles{Role::kWorker});
  folder.Write("roles", "nonsense");
  EXPECT_EQ((*roles)->RolesOf(kOtherToken, {}), Roles{Role::kWorker});
}

TEST(Roles, AreNamedInMessages) {
  EXPECT_EQ(ToString(Roles{Role::kAdministrator, Role::kObserver}), "observer or administrator");
  EXPECT_EQ(ToString(Roles{}), "");
}

}  // namespace
}  // namespace sluice::net
