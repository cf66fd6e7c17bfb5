// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/secrets.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(SecretsTest, KnowsTheNamesOfSecrets) {
  for (const char* const name :
       {"token", "Token", "job-token.txt", "tls.key", "tls.pem", "roles", "server.roles", ".netrc",
        "id_rsa", "password", "client.p12", "my-secret.log"}) {
    EXPECT_TRUE(IsSecretName(name)) << name;
  }
  for (const char* const name :
       {"shard-0.log", "worker-1.log", "output", "keys.log", "report.json"}) {
    EXPECT_FALSE(IsSecretName(name)) << name;
  }
}

TEST(SecretsTest, KnowsTextsThatHoldSecrets) {
  EXPECT_TRUE(HoldsSecret("-----BEGIN EC PRIVATE KEY-----\nabc\n"));
  EXPECT_TRUE(HoldsSecret("# roles\nobserver anyone\nworker token 0123456789abcdef\n"));
  EXPECT_TRUE(HoldsSecret("0123456789abcdef0123456789abcdef\n"));
  EXPECT_FALSE(HoldsSecret(""));
  EXPECT_FALSE(HoldsSecret("started\n"));
  EXPECT_FALSE(HoldsSecret("a worker token is needed here\nshard token 0123456789abcdef\n"));
}

TEST(SecretsTest, RemovesTheLinesAndWordsOfAFileOfSecrets) {
  Secrets secrets;
  secrets.AddFile("administrator token 0123456789abcdef\nshort\n");
  EXPECT_EQ(
      secrets.RemoveFrom("a 0123456789abcdef b=0123456789abcdef; short administrator token\n"),
      "a [secret removed] b=[secret removed]; short administrator token\n");
}

TEST(SecretsTest, RemovesASecretThatBeginsLikeAnother) {
  Secrets secrets;
  secrets.AddFile("0123456789abcdef\n0123456789abcdefgh\n");
  EXPECT_EQ(secrets.RemoveFrom("0123456789abcdefgh 0123456789abcdef"),
            "[secret removed] [secret removed]");
}

}  // namespace
}  // namespace sluice::cli
