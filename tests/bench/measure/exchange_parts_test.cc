// SPDX-License-Identifier: Apache-2.0
// Tests the pure parts of `sluice bench exchange`: its job, the command lines of its processes, and
// the lines between them. exchange_bench_test.py tests the whole command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "bench/measure/exchange_job.h"
#include "bench/measure/exchange_plan.h"
#include "bench/measure/exchange_protocol.h"
#include "job/file/job_file.h"

namespace sluice::bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

ExchangeJob SmallJob() {
  ExchangeJob job;
  job.gradients.elements = 100'000;
  job.codecs = ChooseCodecs("", "");
  job.workers = 3;
  return job;
}

TEST(ExchangeJobTest, CodecsThatAreNotSaidAreChosen) {
  EXPECT_EQ(ChooseCodecs("", ""), (ExchangeCodecs{"topk:1%+int4", "topk:3%+int4"}));
  EXPECT_EQ(ChooseCodecs("topk:1%+int4", ""), ChooseCodecs("", ""));
  EXPECT_EQ(ChooseCodecs("none", ""), (ExchangeCodecs{"none", "none"}));
  EXPECT_EQ(ChooseCodecs("", "int8"), (ExchangeCodecs{"topk:1%+int4", "int8"}));
  EXPECT_EQ(ChooseCodecs("fp16", "int8"), (ExchangeCodecs{"fp16", "int8"}));
}

TEST(ExchangeJobTest, TheJobFileIsWhatWasAskedFor) {
  ExchangeJob job = SmallJob();
  job.sets = {"compression.bundle_bytes=512KiB"};
  const absl::StatusOr<std::string> text = ExchangeJobText(job);
  ASSERT_TRUE(text.ok()) << text.status();
  const absl::StatusOr<job::JobSpec> spec = job::LoadJobFromText(*text, "job", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, kExchangeJobName);
  EXPECT_EQ(spec->workers, 3u);
  EXPECT_EQ(spec->shards, 2u);
  EXPECT_EQ(ToString(spec->exchange.compression.uplink), "topk:1%+int4");
  EXPECT_EQ(ToString(spec->exchange.compression.downlink), "topk:3%+int4");
  EXPECT_EQ(spec->exchange.compression.layout.bundle_elements, 131072u);
}

TEST(ExchangeJobTest, WhatIsWrongIsNamedByItsFlag) {
  ExchangeJob job = SmallJob();
  job.codecs.uplink = "topk:1%+int9";
  EXPECT_THAT(MessageOf(ExchangeJobText(job).status()), HasSubstr("--spec: "));
  job = SmallJob();
  job.codecs.downlink = "no such";
  EXPECT_THAT(MessageOf(ExchangeJobText(job).status()), HasSubstr("--down-spec: "));
  job = SmallJob();
  job.sets = {"compression.bundle_byte=1"};
  EXPECT_THAT(MessageOf(ExchangeJobText(job).status()), HasSubstr("bundle_bytes"));
  job.sets = {"workers=4"};
  EXPECT_THAT(MessageOf(ExchangeJobText(job).status()), HasSubstr("--workers"));
  job.sets = {"checkpoint.dir=/tmp/x"};
  EXPECT_THAT(MessageOf(ExchangeJobText(job).status()), HasSubstr("without checkpoints"));
}

TEST(ExchangeJobTest, TheFullestShardHasItsShareOfTheParameters) {
  const ExchangeJob job = SmallJob();
  const absl::StatusOr<protocol::TensorTable> table = ExchangeTable(job.gradients);
  ASSERT_TRUE(table.ok()) << table.status();
  const absl::StatusOr<double> share = LargestShardShare(job, *table);
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_GE(*share, 0.5);
  EXPECT_LT(*share, 0.6);
  // One of the two shards has all parameters.
  const protocol::TensorTable one = {{.name = "w", .shape = {10}, .strides = {}}};
  EXPECT_EQ(*LargestShardShare(job, one), 1);
}

ExchangePlanOptions SmallPlan() {
  ExchangePlanOptions options;
  options.program = "/bin/sluice";
  options.program_folder = "/bin";
  options.job_path = "/tmp/job.yaml";
  options.gradients.elements = 1000;
  options.security.tls_ca = "ca.pem";
  options.workers = 2;
  options.server_addresses = {"10.0.0.1:7070", "10.0.0.2:7071"};
  options.coordinator = "10.0.0.1:7070";
  options.environment = {"HOME=/root", "http_proxy=http://web:3128"};
  options.log_folder = "/logs";
  return options;
}

TEST(ExchangePlanTest, CommandLines) {
  const cli::CommandLines plan = MakeExchangePlan(SmallPlan());
  ASSERT_THAT(plan.shards, SizeIs(2));
  ASSERT_THAT(plan.workers, SizeIs(2));
  EXPECT_THAT(
      plan.shards[1].command,
      ElementsAre("/bin/sluice-server", "--job", "/tmp/job.yaml", "--shard", "1", "--listen",
                  "10.0.0.2:7071", "--advertise", "10.0.0.2:7071", "--http-listen", "off",
                  "--coordinator", "10.0.0.1:7070", "--tls-ca", "ca.pem", "--allow-anonymous"));
  EXPECT_THAT(plan.workers[1].command,
              ElementsAre("/bin/sluice", "bench", "exchange-worker", "--job", "/tmp/job.yaml",
                          "--coordinator", "10.0.0.1:7070", "--rank", "1", "--model", "resnet50",
                          "--elements", "1000", "--seed", "1", "--tls-ca", "ca.pem"));
  EXPECT_TRUE(plan.workers[1].input);
  EXPECT_FALSE(plan.shards[1].input);
  EXPECT_THAT(plan.workers[0].environment, ElementsAre("HOME=/root"));
  EXPECT_EQ(plan.workers[1].name, "worker 1");
}

TEST(ExchangePlanTest, WordsBeforeCommandsNameTheProcess) {
  ExchangePlanOptions options = SmallPlan();
  options.wrap_worker = "ip netns exec  w{}";
  options.wrap_server = "nice";
  options.gradients.table_path = "tensors.txt";
  const cli::CommandLines plan = MakeExchangePlan(options);
  const std::vector<std::string>& worker = plan.workers[1].command;
  EXPECT_THAT(std::vector<std::string>(worker.begin(), worker.begin() + 6),
              ElementsAre("/usr/bin/env", "ip", "netns", "exec", "w1", "/bin/sluice"));
  EXPECT_THAT(worker, Contains("tensors.txt"));
  EXPECT_EQ(plan.shards[0].command[1], "nice");
}

TEST(ExchangePlanTest, WithServersElsewhereOnlyWorkersAreStarted) {
  ExchangePlanOptions options = SmallPlan();
  options.server_addresses.clear();
  EXPECT_THAT(MakeExchangePlan(options).shards, IsEmpty());
  EXPECT_THAT(MakeExchangePlan(options).workers, SizeIs(2));
}

TEST(ExchangePlanTest, ServersListenWhereTheirHostsSay) {
  EXPECT_THAT(*AddressesOf({"10.0.0.1", "10.0.0.2:99"}, 2),
              ElementsAre("10.0.0.1:7070", "10.0.0.2:99"));
  EXPECT_THAT(MessageOf(AddressesOf({"10.0.0.1"}, 2).status()), HasSubstr("1 hosts for 2 shards"));
  EXPECT_THAT(MessageOf(AddressesOf({"a", ""}, 2).status()), HasSubstr("host of shard 1 is empty"));
}

v1::GetStatusReply FittingStatus() {
  v1::GetStatusReply status;
  status.set_job_name(std::string(kExchangeJobName));
  status.set_world_size(3);
  status.add_shards();
  status.add_shards();
  status.set_phase(v1::JOB_PHASE_WAITING);
  return status;
}

TEST(ExchangePlanTest, ARemoteJobThatDoesNotFitIsNamed) {
  EXPECT_TRUE(CheckRemoteJob(FittingStatus(), SmallJob()).ok());
  v1::GetStatusReply status = FittingStatus();
  status.set_job_name("mnist");
  EXPECT_THAT(MessageOf(CheckRemoteJob(status, SmallJob())), HasSubstr("the job 'mnist'"));
  status = FittingStatus();
  status.set_world_size(8);
  EXPECT_THAT(MessageOf(CheckRemoteJob(status, SmallJob())), HasSubstr("for 8 workers, not 3"));
  status = FittingStatus();
  status.add_shards();
  EXPECT_THAT(MessageOf(CheckRemoteJob(status, SmallJob())), HasSubstr("on 3 shards, not 2"));
  status = FittingStatus();
  status.set_phase(v1::JOB_PHASE_FINISHED);
  EXPECT_THAT(MessageOf(CheckRemoteJob(status, SmallJob())), HasSubstr("--print-job"));
}

TEST(ExchangeProtocolTest, OrdersComeBackAsTheyWere) {
  const absl::StatusOr<TurnOrder> turn = ParseOrder("turn 123456789012 5000000");
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_FALSE(turn->leave);
  EXPECT_EQ(turn->start_ns, 123456789012);
  EXPECT_EQ(turn->compute_ns, 5000000);
  EXPECT_EQ(FormatOrder(*turn), "turn 123456789012 5000000\n");
  EXPECT_TRUE(ParseOrder("leave")->leave);
  EXPECT_EQ(FormatOrder({.leave = true}), "leave\n");
  for (const char* wrong : {"", "turn", "turn 1", "turn 1 x", "turn 1 2 3", "go 1 2"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseOrder(wrong).status())) << wrong;
  }
}

TEST(ExchangeProtocolTest, AnswersComeBackAsTheyWere) {
  const TurnReport report{1, 2, 3, 4, 5, 6, 7, 8, 9, {11, 12, 13, 14, 15}, 10};
  std::string line = FormatTurn(report);
  line.pop_back();
  const auto answer = ParseAnswer(line);
  ASSERT_TRUE(answer.ok() && answer->has_value() && (*answer)->turn.has_value()) << line;
  EXPECT_EQ(*(*answer)->turn, report);
  line = FormatJoined();
  line.pop_back();
  EXPECT_FALSE((*ParseAnswer(line))->turn.has_value());
}

TEST(ExchangeProtocolTest, LinesOfTheLogAreNoAnswersAndBrokenAnswersAreErrors) {
  EXPECT_FALSE(ParseAnswer("2026-11-21T04:08:11.123Z INFO worker: joined")->has_value());
  EXPECT_FALSE(ParseAnswer("")->has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(ParseAnswer("exchange turn 1 2").status()));
  const std::string whole = FormatTurn(TurnReport());
  for (const absl::string_view wrong : {" 1", " x", ""}) {
    const size_t cut = whole.size() - (wrong.empty() ? 3 : 1);
    const std::string line = absl::StrCat(whole.substr(0, cut), wrong);
    EXPECT_TRUE(absl::IsInvalidArgument(ParseAnswer(line).status())) << line;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ParseAnswer("exchange ").status()));
}

}  // namespace
}  // namespace sluice::bench
