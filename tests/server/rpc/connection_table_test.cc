// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Id = server::ConnectionTable::Id;

constexpr server::ConnectionLimits kSmall{.strangers = 6,
                                          .strangers_per_peer = 3,
                                          .members = 5,
                                          .members_per_peer = 4,
                                          .patience = milliseconds(1000)};

class ConnectionTableTest : public ::testing::Test {
 protected:
  void Pass(int ms) { now_ += milliseconds(ms); }
  server::ConnectionTable::Addition Add(const std::string& peer) {
    return table_.Add(peer, absl::StrCat(peer, ":", ++port_), now_);
  }
  Id AddOne(const std::string& peer) {
    const server::ConnectionTable::Addition addition = Add(peer);
    EXPECT_FALSE(addition.displaced.has_value());
    return addition.id;
  }
  // Returns the address of the newest connection.
  std::string Newest(const std::string& peer) const { return absl::StrCat(peer, ":", port_); }

  server::ConnectionTable table_{kSmall};
  server::ConnectionTable::Time now_{};
  int port_ = 0;
};

TEST_F(ConnectionTableTest, AFullPeerLosesItsOldestStranger) {
  const Id oldest = AddOne("a");
  AddOne("a");
  AddOne("a");
  AddOne("b");
  EXPECT_EQ(Add("a").displaced, oldest);
  EXPECT_EQ(table_.strangers(), 4u);
}

TEST_F(ConnectionTableTest, ANewcomerTakesThePlaceOfThePeerWithTheMost) {
  AddOne("b");
  const Id oldest = AddOne("a");
  for (int i = 0; i < 2; ++i) AddOne("a");
  for (int i = 0; i < 2; ++i) AddOne("b");
  const server::ConnectionTable::Addition next = Add("c");
  EXPECT_TRUE(next.displaced.has_value());
  EXPECT_NE(next.displaced, oldest) << "peer b has as many connections and an older one";
  EXPECT_EQ(Add("c").displaced, oldest) << "now peer a has the most";
}

TEST_F(ConnectionTableTest, OfEqualPeersTheOldestMakesWay) {
  const Id oldest = AddOne("f");
  for (const char* peer : {"a", "b", "c", "d", "e"}) AddOne(peer);
  EXPECT_EQ(Add("g").displaced, oldest);
}

TEST_F(ConnectionTableTest, StrangersHaveLittleTimeAndMembersAllOfIt) {
  const Id first = AddOne("a");
  Pass(400);
  const Id member = AddOne("a");
  EXPECT_THAT(table_.Admit(Newest("a")).members, ElementsAre(member));
  const Id last = AddOne("b");
  EXPECT_EQ(table_.NextLate(), server::ConnectionTable::Time{} + milliseconds(1000));
  Pass(599);
  EXPECT_THAT(table_.RemoveLate(now_), IsEmpty());
  Pass(1);
  EXPECT_THAT(table_.RemoveLate(now_), ElementsAre(first));
  Pass(1000);
  EXPECT_THAT(table_.RemoveLate(now_), ElementsAre(last));
  EXPECT_FALSE(table_.NextLate().has_value());
  EXPECT_EQ(table_.members(), 1u);
  EXPECT_THAT(table_.Admit("a:2").members, IsEmpty()) << "the connection is already a member";
  table_.Remove(member);
  table_.Remove(member);
  EXPECT_EQ(table_.members(), 0u);
}

TEST_F(ConnectionTableTest, MembersHaveLimitsToo) {
  for (int i = 0; i < 4; ++i) {
    AddOne("a");
    EXPECT_THAT(table_.Admit(Newest("a")).refused, IsEmpty());
  }
  const Id fifth = AddOne("a");
  EXPECT_THAT(table_.Admit(Newest("a")).refused, ElementsAre(fifth))
      << "the peer has reached its limit of members";
  table_.Remove(fifth);
  AddOne("b");
  EXPECT_THAT(table_.Admit(Newest("b")).refused, IsEmpty());
  const Id sixth = AddOne("c");
  EXPECT_THAT(table_.Admit(Newest("c")).refused, ElementsAre(sixth))
      << "the table has reached its limit of members";
  table_.Remove(sixth);
  EXPECT_EQ(table_.strangers(), 0u);
  table_.Remove(1);
  const Id last = AddOne("a");
  EXPECT_THAT(table_.Admit(Newest("a")).members, ElementsAre(last));
}

TEST_F(ConnectionTableTest, OneAddressMayHaveTwoConnections) {
  const Id first = table_.Add("a", "a:1", now_).id;
  const Id second = table_.Add("a", "a:1", now_).id;
  EXPECT_THAT(table_.Admit("a:1").members, ElementsAre(first, second));
  table_.Remove(first);
  EXPECT_EQ(table_.members(), 1u);
  EXPECT_THAT(table_.Admit("a:7").members, IsEmpty());
}

TEST(ConnectionLimitsTest, TheyFitIntoWhatThereIs) {
  job::JobSpec job;
  job.workers = 100;
  job.shards = 2;
  const server::DescriptorNeed need = server::NeedOf(job, 0, 128);
  const struct {
    uint64_t spare;
    size_t strangers, strangers_per_peer, members, members_per_peer;
  } kCases[] = {
      {0, 64, 32, 317, 317},
      {96, 88, 32, 317 + 48, 317 + 48},
      {1000, 314, 78, 634 + 64, 317 + 64},
      {1'000'000, 1024, 256, 634 + 64, 317 + 64},
  };
  ASSERT_EQ(need.connections(), 317u);
  for (const auto& one : kCases) {
    const server::ConnectionLimits limits = server::LimitsOf(need, need.total() + one.spare);
    EXPECT_EQ(limits.strangers, one.strangers) << one.spare;
    EXPECT_EQ(limits.strangers_per_peer, one.strangers_per_peer) << one.spare;
    EXPECT_EQ(limits.members, one.members) << one.spare;
    EXPECT_EQ(limits.members_per_peer, one.members_per_peer) << one.spare;
    EXPECT_LE(2 * limits.strangers + limits.members,
              need.connections() + server::kNewcomerDescriptors + one.spare);
  }
}

TEST(ConnectionLimitsTest, ASmallJobHasTheLeast) {
  const server::DescriptorNeed need = server::NeedOf({}, 0, 128);
  const server::ConnectionLimits limits = server::LimitsOf(need, need.total() + 1'000'000);
  EXPECT_EQ(limits.strangers, 256u);
  EXPECT_EQ(limits.strangers_per_peer, 64u);
}

}  // namespace
}  // namespace sluice
