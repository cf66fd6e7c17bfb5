// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/secret_mode.h"

#include <gtest/gtest.h>

namespace sluice::net {
namespace {

TEST(ExposesSecret, OwnFilesAreForTheirOwnerAlone) {
  for (const mode_t mode : {0600, 0400, 0700}) EXPECT_FALSE(ExposesSecret(mode, true)) << mode;
  for (const mode_t mode : {0644, 0640, 0604, 0602, 0620, 0601, 0660}) {
    EXPECT_TRUE(ExposesSecret(mode, true)) << mode;
  }
}

// A Kubernetes Secret belongs to root, and the group of the pod reads it.
TEST(ExposesSecret, TheGroupMayReadAFileOfAnotherUserButNobodyMayChangeIt) {
  for (const mode_t mode : {0440, 0640, 0400}) EXPECT_FALSE(ExposesSecret(mode, false)) << mode;
  for (const mode_t mode : {0444, 0644, 0460, 0660}) {
    EXPECT_TRUE(ExposesSecret(mode, false)) << mode;
  }
}

TEST(ExposedSecretWarning, AFileThatIsMissingOrNotGivenIsNoSecret) {
  EXPECT_EQ(ExposedSecretWarning("--tls-key", ""), "");
  EXPECT_EQ(ExposedSecretWarning("--tls-key", "/no/such/file"), "");
}

}  // namespace
}  // namespace sluice::net
