// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/status_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/protocol/wire/unset_fields.h"

namespace sluice::server {
namespace {

TEST(StatusReplyTest, AStatusCarriesWarnings) {
  v1::GetStatusReply reply;
  StatusToProto(JobStatus{},
                {{JobWarning::Kind::kSlow, "worker 3 waits on its uplink", "use fewer bytes"}},
                &reply);
  ASSERT_EQ(reply.warnings_size(), 1);
  EXPECT_EQ(reply.warnings(0).kind(), "slow");
  EXPECT_EQ(reply.warnings(0).text(), "worker 3 waits on its uplink");
  EXPECT_EQ(reply.warnings(0).action(), "use fewer bytes");
}

TEST(StatusReplyTest, TextsFromElsewhereAreUtf8InTheReply) {
  const std::string broken = "\xff caf\xc3";
  JobStatus status;
  status.job_name = status.failure = status.last_rollback = broken;
  status.members.emplace_back().host = broken;
  status.shards.emplace_back().address = broken;
  v1::GetStatusReply reply;
  StatusToProto(status, {{JobWarning::Kind::kNote, broken}}, &reply);
  EXPECT_TRUE(protocol::CanBeRead(reply));
  EXPECT_EQ(reply.failure(), "\xef\xbf\xbd caf\xef\xbf\xbd");
}

}  // namespace
}  // namespace sluice::server
