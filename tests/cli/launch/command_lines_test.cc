// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/command_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

LaunchOptions TwoByTwo() {
  LaunchOptions options;
  options.program_folder = "/bin";
  options.job_path = "job.yaml";
  options.sets = {"steps=3"};
  options.dense = true;
  options.log_folder = "/logs";
  options.shard_ports = {1001, 1002};
  options.http_listen = "127.0.0.1:7071";
  options.workers = 2;
  return options;
}

TEST(CommandLinesTest, CommandLines) {
  const CommandLines plan = MakeCommandLines(TwoByTwo());
  EXPECT_EQ(plan.coordinator, "127.0.0.1:1001");
  ASSERT_THAT(plan.shards, SizeIs(2));
  ASSERT_THAT(plan.workers, SizeIs(2));
  EXPECT_THAT(plan.shards[0].command,
              ElementsAre("/bin/sluice-server", "--job", "job.yaml", "--set", "steps=3", "--dense",
                          "--shard", "0", "--listen", "127.0.0.1:1001", "--advertise",
                          "127.0.0.1:1001", "--http-listen", "127.0.0.1:7071"));
  EXPECT_THAT(plan.shards[1].command, IsSupersetOf({"--coordinator", "127.0.0.1:1001", "off"}));
  EXPECT_THAT(plan.workers[1].command,
              ElementsAre("/bin/sluice-worker", "--job", "job.yaml", "--set", "steps=3", "--dense",
                          "--coordinator", "127.0.0.1:1001", "--rank", "1", "--report",
                          "/logs/report-1.json"));
  EXPECT_EQ(plan.workers[1].name, "worker 1");
  EXPECT_EQ(plan.shards[1].log_path, "/logs/shard-1.log");
}

TEST(CommandLinesTest, NoProxyAndNoRankOfTheSurroundingsIsPassedOn) {
  LaunchOptions options = TwoByTwo();
  options.environment = {"HOME=/root", "http_proxy=http://web:3128", "NO_PROXY=*", "RANK=5",
                         "WORLD_SIZE=9"};
  EXPECT_THAT(MakeCommandLines(options).workers[0].environment, ElementsAre("HOME=/root"));
}

TEST(CommandLinesTest, ACommandRunsInPlaceOfTheWorkers) {
  LaunchOptions options = TwoByTwo();
  options.command = {"/usr/bin/python3", "train.py", "--set", "a=b"};
  options.master_port = 1500;
  options.job_source = "mine.yaml";
  options.threads = 3;
  options.environment = {"HOME=/root", "http_proxy=http://web:3128", "NO_PROXY=*",
                         "RANK=5",     "GRPC_PROXY=http://web:3128", "SLUICE_JOB=other.yaml"};
  const CommandLines plan = MakeCommandLines(options);
  EXPECT_EQ(plan.shards[0].command[0], "/bin/sluice-server");
  ASSERT_THAT(plan.workers, SizeIs(2));
  EXPECT_EQ(plan.workers[1].name, "worker 1");
  EXPECT_EQ(plan.workers[1].log_path, "/logs/worker-1.log");
  EXPECT_EQ(plan.workers[1].command, options.command);
  EXPECT_THAT(plan.workers[1].environment,
              ElementsAre("HOME=/root", "http_proxy=http://web:3128", "NO_PROXY=*",
                          "no_grpc_proxy=127.0.0.1", "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2",
                          "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1500",
                          "SLUICE_COORDINATOR=127.0.0.1:1001", "SLUICE_JOB=job.yaml",
                          "SLUICE_JOB_SOURCE=mine.yaml", "SLUICE_REPORT=/logs/report-1.json",
                          "OMP_NUM_THREADS=3", "PYTHONUNBUFFERED=1"));
}

TEST(CommandLinesTest, ACommandDialsThroughItsPacedLink) {
  LaunchOptions options = TwoByTwo();
  options.command = {"/bin/true"};
  options.environment = {"no_proxy=127.0.0.1"};
  options.proxy_ports = {2000, 2001, 2002, 2003};
  EXPECT_THAT(MakeCommandLines(options).workers[1].environment,
              IsSupersetOf({"grpc_proxy=http://127.0.0.1:2003", "no_grpc_proxy=none"}));
}

TEST(CommandLinesTest, WorkersOfRacksGoToTheirRelaysOverLinksThatAreNotPaced) {
  LaunchOptions options = TwoByTwo();
  options.relay_ports = {1003, 1004};
  options.relay_of = {0, 1};
  options.proxy_ports = {2000, 2001, 2002, 2003};
  const CommandLines plan = MakeCommandLines(options);
  ASSERT_THAT(plan.relays, SizeIs(2));
  EXPECT_EQ(plan.relays[1].name, "relay 1");
  EXPECT_THAT(
      plan.relays[1].command,
      ElementsAre("/bin/sluice-relay", "--job", "job.yaml", "--set", "steps=3", "--dense",
                  "--relay", "1", "--coordinator", "127.0.0.1:1001", "--listen", "127.0.0.1:1004"));
  EXPECT_THAT(plan.relays[1].environment, ElementsAre("grpc_proxy=http://127.0.0.1:2003"));
  EXPECT_THAT(plan.workers[1].command, IsSupersetOf({"--coordinator", "127.0.0.1:1004"}));
  EXPECT_THAT(plan.workers[1].environment, ElementsAre());
}

TEST(CommandLinesTest, EachProcessDialsThroughItsOwnPacedLink) {
  LaunchOptions options = TwoByTwo();
  options.proxy_ports = {2000, 2001, 2002, 2003};
  const CommandLines plan = MakeCommandLines(options);
  EXPECT_THAT(plan.shards[1].environment, ElementsAre("grpc_proxy=http://127.0.0.1:2001"));
  EXPECT_THAT(plan.workers[1].environment, ElementsAre("grpc_proxy=http://127.0.0.1:2003"));
}

TEST(CommandLinesTest, LogsGoOnIfAsked) {
  LaunchOptions options = TwoByTwo();
  EXPECT_FALSE(MakeCommandLines(options).shards[0].append_log);
  options.append_logs = true;
  EXPECT_TRUE(MakeCommandLines(options).shards[0].append_log);
  EXPECT_TRUE(MakeCommandLines(options).workers[1].append_log);
}

TEST(CommandLinesTest, MetricsOfAllOnlyIfAsked) {
  LaunchOptions options = TwoByTwo();
  const CommandLines without = MakeCommandLines(options);
  EXPECT_THAT(without.shards[1].command, IsSupersetOf({"--http-listen", "off"}));
  EXPECT_THAT(without.workers[0].command, Not(Contains("--http-listen")));
  options.http_port_base = 9100;
  const CommandLines plan = MakeCommandLines(options);
  EXPECT_THAT(plan.shards[0].command, Contains(options.http_listen));
  EXPECT_THAT(plan.shards[1].command, IsSupersetOf({"--http-listen", "127.0.0.1:9101"}));
  EXPECT_THAT(plan.workers[0].command, IsSupersetOf({"--http-listen", "127.0.0.1:9102"}));
  EXPECT_THAT(plan.workers[1].command, IsSupersetOf({"--http-listen", "127.0.0.1:9103"}));
}

TEST(CommandLinesTest, TracesOnlyIfAsked) {
  LaunchOptions options = TwoByTwo();
  EXPECT_THAT(MakeCommandLines(options).shards[0].command, Not(Contains("--trace-file")));
  options.trace_folder = "/traces";
  const CommandLines plan = MakeCommandLines(options);
  EXPECT_THAT(plan.shards[1].command, IsSupersetOf({"--trace-file", "/traces/shard-1.json"}));
  EXPECT_THAT(plan.workers[0].command, IsSupersetOf({"--trace-file", "/traces/worker-0.json"}));
}

TEST(CommandLinesTest, EveryProcessGetsTheFileOfTheToken) {
  LaunchOptions options = TwoByTwo();
  options.relay_ports = {1003, 1004};
  options.relay_of = {0, 1};
  options.token_file = "/logs/token";
  options.environment = {"SLUICE_TOKEN_FILE=/of/another/run"};
  const CommandLines plan = MakeCommandLines(options);
  for (const ChildOptions& child : {plan.shards[0], plan.relays[1], plan.workers[1]}) {
    EXPECT_THAT(child.command, IsSupersetOf({"--token-file", "/logs/token"})) << child.name;
    EXPECT_THAT(child.environment, IsEmpty()) << child.name;
  }
  options.command = {"/bin/true"};
  EXPECT_THAT(MakeCommandLines(options).workers[1].environment,
              AllOf(Contains("SLUICE_TOKEN_FILE=/logs/token"),
                    Not(Contains("SLUICE_TOKEN_FILE=/of/another/run"))));
}

TEST(CommandLinesTest, ThreadsOnlyIfAsked) {
  LaunchOptions options = TwoByTwo();
  EXPECT_THAT(MakeCommandLines(options).workers[0].command, Not(Contains("--threads")));
  options.threads = 3;
  EXPECT_THAT(MakeCommandLines(options).workers[0].command, IsSupersetOf({"--threads", "3"}));
}

}  // namespace
}  // namespace sluice::cli
