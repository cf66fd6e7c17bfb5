// SPDX-License-Identifier: Apache-2.0
#include "job/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "compress/codec_table.h"
#include "job/support.h"

namespace sluice::job {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

compress::CodecSpec Spec(absl::string_view text) {
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(compress::CodecSpec());
}

protocol::TensorInfo Tensor(const std::string& name, int64_t elements) {
  return {name, {elements}, {}, protocol::DType::kFloat32};
}

protocol::CompressionSpec TopK() {
  protocol::CompressionSpec compression;
  compression.uplink = Spec("topk:1%+int4");
  compression.downlink = Spec("ternary:0.5");
  return compression;
}

TEST(DefaultGrpcPort, CountsShardsWithoutTheHttpPort) {
  const ServerSpec usual;  // The ports must be 7070 and 7071.
  EXPECT_EQ(*DefaultGrpcPort(usual, 0), 7070);
  EXPECT_EQ(*DefaultGrpcPort(usual, 1), 7072);
  EXPECT_EQ(*DefaultGrpcPort(usual, 2), 7073);
  const ServerSpec later{.port = 7070, .http_port = 7072};
  EXPECT_EQ(*DefaultGrpcPort(later, 1), 7071);
  EXPECT_EQ(*DefaultGrpcPort(later, 2), 7073);
  const ServerSpec below{.port = 7070, .http_port = 80};
  EXPECT_EQ(*DefaultGrpcPort(below, 3), 7073);
  const ServerSpec without{.port = 7070, .http_port = 0};
  EXPECT_EQ(*DefaultGrpcPort(without, 1), 7071);
  const ServerSpec any{.port = 0};
  EXPECT_EQ(*DefaultGrpcPort(any, 5), 0);
}

TEST(DefaultGrpcPort, RefusesAShardWithoutAPort) {
  const ServerSpec last{.port = 65533, .http_port = 65534};
  EXPECT_EQ(*DefaultGrpcPort(last, 1), 65535);
  const absl::Status none = DefaultGrpcPort(last, 2).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(none.message()), HasSubstr("shard 2"));
}

TEST(SpecForTensor, PicksTheDirection) {
  const protocol::TensorInfo large = Tensor("fc.weight", 1024);
  EXPECT_EQ(protocol::SpecForTensor(TopK(), large, protocol::Direction::kUplink),
            Spec("topk:1%+int4"));
  EXPECT_EQ(protocol::SpecForTensor(TopK(), large, protocol::Direction::kDownlink),
            Spec("ternary:0.5"));
}

TEST(SpecForTensor, SendsSmallTensorsAsFp16) {
  protocol::CompressionSpec compression = TopK();
  const protocol::TensorInfo small = Tensor("fc.bias", 1023);
  EXPECT_EQ(protocol::SpecForTensor(compression, small, protocol::Direction::kUplink),
            Spec("fp16"));
  compression.uplink = Spec("topk:1%/noef");
  EXPECT_EQ(protocol::SpecForTensor(compression, small, protocol::Direction::kUplink),
            Spec("fp16/noef"));
  compression.min_elements = 0;
  EXPECT_EQ(protocol::SpecForTensor(compression, small, protocol::Direction::kUplink),
            Spec("topk:1%/noef"));
}

TEST(SpecForTensor, RoundsNothingThatTheDirectionSendsWithMoreBits) {
  protocol::CompressionSpec compression;
  compression.downlink = Spec("bf16");
  const protocol::TensorInfo small = Tensor("fc.bias", 10);
  EXPECT_EQ(protocol::SpecForTensor(compression, small, protocol::Direction::kUplink),
            Spec("none"));
  EXPECT_EQ(protocol::SpecForTensor(compression, small, protocol::Direction::kDownlink),
            Spec("bf16"));
}

TEST(SpecForTensor, LetsTheLastOverrideWinPerDirection) {
  protocol::CompressionSpec compression = TopK();
  compression.overrides = {{"fc*", Spec("int8"), Spec("int8")}, {"*.bias", Spec("none"), {}}};
  const protocol::TensorInfo bias = Tensor("fc.bias", 10);
  EXPECT_EQ(protocol::SpecForTensor(compression, bias, protocol::Direction::kUplink), Spec("none"));
  EXPECT_EQ(protocol::SpecForTensor(compression, bias, protocol::Direction::kDownlink),
            Spec("int8"));
}

TEST(SpecForTensor, MatchesPatterns) {
  const auto matches = [](const std::string& pattern, const std::string& name) {
    protocol::CompressionSpec compression;
    compression.overrides = {{pattern, Spec("int8"), {}}};
    return protocol::SpecForTensor(compression, Tensor(name, 10), protocol::Direction::kUplink) ==
           Spec("int8");
  };
  EXPECT_TRUE(matches("*", "a.b"));
  EXPECT_TRUE(matches("a.b", "a.b"));
  EXPECT_TRUE(matches("a?b", "a.b"));
  EXPECT_TRUE(matches("*b*", "abc"));
  EXPECT_TRUE(matches("a*c*e", "abcdce"));
  EXPECT_TRUE(matches("ab**", "ab"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("a", "ab"));
  EXPECT_FALSE(matches("ab?", "ab"));
  EXPECT_FALSE(matches("*x*", "abc"));
  EXPECT_FALSE(matches("a*c", "abcd"));
}

TEST(SpecForTensor, MatchesHostilePatternsQuickly) {
  protocol::CompressionSpec compression;
  std::string pattern;
  for (int i = 0; i < 2000; ++i) pattern += "*a";
  compression.overrides = {{pattern + "b", Spec("int8"), {}}};
  const protocol::TensorInfo tensor = Tensor(std::string(512, 'a'), 10);
  EXPECT_EQ(protocol::SpecForTensor(compression, tensor, protocol::Direction::kUplink),
            Spec("none"));
}

JobSpec Job(const std::string& optimizer, double lr, double momentum) {
  JobSpec spec;
  spec.optimizer.name = optimizer;
  spec.optimizer.lr = lr;
  spec.optimizer.momentum = momentum;
  spec.exchange.compression.uplink = Spec("topk:1%+int4");
  return spec;
}

TEST(JobWarnings, OfLocalStepsTheOuterMomentumCounts) {
  JobSpec job = Job("sgd", 0.1, 0.9);
  job.exchange.mode = job::Mode::kLocalSgd;
  job.local.steps = 20;
  EXPECT_THAT(JobWarnings(job),
              ElementsAre(AllOf(HasSubstr("outer_momentum 0.9 amplifies delay"),
                                HasSubstr("use outer_momentum 0.5 and outer_lr"))));
  job.local.outer_optimizer = job::OuterOptimizer::kAverage;
  EXPECT_THAT(JobWarnings(job), IsEmpty());
}

TEST(JobWarnings, AHighOuterMomentumNeedsManyLocalSteps) {
  JobSpec job = Job("sgd", 0.1, 0.9);
  job.exchange.mode = job::Mode::kLocalSgd;
  job.exchange.compression.uplink = Spec("int8");
  job.local.steps = 9;
  EXPECT_THAT(JobWarnings(job),
              ElementsAre(AllOf(HasSubstr("outer_momentum 0.9 sums the changes of about 10"),
                                HasSubstr("local_steps 9: use outer_momentum 0.5"))));
  // A job with both problems gets one suggestion.
  JobSpec delayed = job;
  delayed.exchange.compression.uplink = Spec("topk:1%");
  EXPECT_THAT(JobWarnings(delayed),
              ElementsAre(HasSubstr("0.5 and outer_lr 0.6"), HasSubstr("0.5 and outer_lr 0.6")));
  job.local.steps = 10;
  EXPECT_THAT(JobWarnings(job), IsEmpty());
  job.local.steps = 1;
  job.local.outer_momentum = 0.5;
  EXPECT_THAT(JobWarnings(job), IsEmpty());
  job.local.outer_momentum = 0.9;
  job.local.outer_optimizer = job::OuterOptimizer::kAverage;
  EXPECT_THAT(JobWarnings(job), IsEmpty());
}

// The optimizer's momentum must cause no warning, because it is lowered automatically
// (MomentumNote).
TEST(JobWarnings, TheOptimizersMomentumIsNobodysBusiness) {
  EXPECT_THAT(JobWarnings(Job("sgd", 0.1, 0.9)), IsEmpty());
  EXPECT_THAT(JobWarnings(Job("adamw", 0.001, 0)), IsEmpty());
}

TEST(JobWarnings, IsSilentWhereAllGoesTogether) {
  EXPECT_THAT(JobWarnings(Job("sgd", 0.5, 0.5)), IsEmpty());
  JobSpec dense = Job("sgd", 0.1, 0.9);
  dense.exchange.compression.uplink = Spec("int8");
  EXPECT_THAT(JobWarnings(dense), IsEmpty());
  // DIANA must cause no warning: its published values are right on average in every step, even if
  // few elements are sent.
  JobSpec diana = Job("sgd", 0.1, 0.9);
  diana.exchange.compression.uplink = Spec("randomk:5%,unbiased/diana");
  EXPECT_THAT(JobWarnings(diana), IsEmpty());
  diana.exchange.compression.uplink = Spec("topk:1%/ef21");
  EXPECT_THAT(JobWarnings(diana), ElementsAre(HasSubstr("treats the noise of small batches")));
}

TEST(JobWarnings, TellsThatOneCheckpointIsFew) {
  JobSpec spec = Job("sgd", 0.5, 0.5);
  spec.checkpoint.dir = "a";
  EXPECT_THAT(JobWarnings(spec), IsEmpty());
  spec.checkpoint.keep = 1;
  EXPECT_THAT(JobWarnings(spec),
              ElementsAre(HasSubstr("checkpoint.keep 1 leaves no other checkpoint")));
}

TEST(JobWarnings, SeesDownlinkAndOverrides) {
  JobSpec spec = Job("sgd", 0.1, 0.9);
  spec.exchange.mode = job::Mode::kLocalSgd;
  spec.local.steps = 20;
  spec.exchange.compression.uplink = Spec("int8");
  spec.exchange.compression.downlink = Spec("ternary:0.5");
  spec.exchange.compression.overrides = {{"fc*", Spec("topk:1%"), {}}};
  EXPECT_THAT(JobWarnings(spec),
              ElementsAre(AllOf(HasSubstr("downlink ternary:0.5 and uplink"),
                                HasSubstr("tensors fc* topk:1% delay changes"))));
}

TEST(JobWarnings, TellsWhatNoFeedbackLoses) {
  JobSpec spec = Job("sgd", 0.1, 0);
  spec.exchange.compression.uplink = Spec("topk:1%/noef");
  spec.exchange.compression.downlink = Spec("int8/noef");
  EXPECT_THAT(JobWarnings(spec), ElementsAre(HasSubstr("uplink topk:1%/noef permanently loses")));
  for (const char* coarse : {"sign/noef", "int2/noef", "powersgd:4/noef", "intsum:2/noef"}) {
    spec.exchange.compression.uplink = Spec(coarse);
    EXPECT_THAT(JobWarnings(spec), ElementsAre(HasSubstr("permanently loses"))) << coarse;
  }
  // These must cause no warning: fine quantization, unbiased codecs, a vote, and a sketch whose
  // receiver keeps the values that it does not publish.
  for (const char* fine : {"int4/noef", "int2:sr", "eden:1", "signsgd", "countsketch:10x"}) {
    spec.exchange.compression.uplink = Spec(fine);
    EXPECT_THAT(JobWarnings(spec), IsEmpty()) << fine;
  }
}

TEST(JobWarnings, TellWhatCompensatorsDoNotGoWith) {
  JobSpec spec = Job("sgd", 0.1, 0.3);
  spec.exchange.compression.uplink = Spec("topk:1%/dgc:0.9");
  EXPECT_THAT(JobWarnings(spec),
              ElementsAre(AllOf(HasSubstr("uplink topk:1%/dgc:0.9 has a momentum"),
                                EndsWith(": use momentum 0"))));
  spec.optimizer.momentum = 0;
  EXPECT_THAT(JobWarnings(spec), IsEmpty());
  spec.exchange.compression.uplink = Spec("sign/ef21");
  EXPECT_THAT(JobWarnings(spec), ElementsAre(HasSubstr("use sign unless batches are large")));
  spec.exchange.compression.uplink = Spec("int4/ef21");
  EXPECT_THAT(JobWarnings(spec), IsEmpty());
}

TEST(ChunkConfigs, CarryWhatBothEndsMustKnow) {
  const protocol::TensorTable table = {
      {.name = "fc.weight", .shape = {512, 300}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "fc.bias", .shape = {512}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "out.weight",
       .shape = {10, 512},
       .strides = {},
       .dtype = protocol::DType::kFloat32}};
  protocol::CompressionSpec compression;
  compression.uplink = Spec("powersgd:2");
  compression.downlink = Spec("int8");
  compression.overrides = {{"out*", Spec("topk:1%"), {}}};
  const std::vector<bool> whole_rows = protocol::WholeRows(compression, table);
  EXPECT_THAT(whole_rows, ElementsAre(true, false, false));
  const protocol::Layout layout = *protocol::BuildLayout(table, 2, {}, whole_rows);
  const std::vector<compress::ChunkConfig> configs =
      protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kUplink);
  ASSERT_EQ(configs.size(), 3u);
  EXPECT_EQ(configs[0].rows, 512u);
  EXPECT_EQ(configs[0].count, 512u * 300);
  EXPECT_EQ(configs[1].spec, Spec("fp16"));
  EXPECT_EQ(configs[1].rows, 0u);
  EXPECT_EQ(configs[2].spec, Spec("topk:1%"));
  for (uint32_t id = 0; id < 3; ++id) {
    EXPECT_EQ(configs[id].id, id);
    EXPECT_EQ(configs[id].tensor, layout.chunks[id].tensor);
  }
  EXPECT_EQ(
      protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kDownlink)[2].spec,
      Spec("int8"));
}

SupportAnswer Ask(Mode mode, absl::string_view rule, Membership membership, absl::string_view codec,
                  protocol::Direction direction = protocol::Direction::kUplink) {
  return FindSupport({.mode = mode,
                      .rule = rule,
                      .membership = membership,
                      .codec = Spec(codec),
                      .direction = direction});
}

TEST(Support, BuildsSyncWithFixedMembership) {
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    EXPECT_EQ(Ask(Mode::kSync, "average", Membership::kFixed, entry.example).support,
              Support::kBuilt)
        << entry.name;
  }
}

TEST(Support, KnowsWhatIsImpossible) {
  EXPECT_EQ(Ask(Mode::kSync, "average", Membership::kElastic, "int8").support, Support::kBuilt);
  EXPECT_EQ(Ask(Mode::kSync, "average", Membership::kElastic, "int4/ef21").support,
            Support::kImpossible);
  EXPECT_EQ(Ask(Mode::kLocalSgd, "outer", Membership::kFixed, "int8").support, Support::kBuilt);
  EXPECT_EQ(Ask(Mode::kLocalSgd, "outer", Membership::kElastic, "int8").support, Support::kBuilt);
  EXPECT_EQ(Ask(Mode::kLocalSgd, RuleOf(Mode::kLocalSgd, UpdateLocation::kShards, "sgd"),
                Membership::kFixed, "int8")
                .key,
            "optimizer.location");
  EXPECT_EQ(Ask(Mode::kAsync, "average", Membership::kFixed, "int8").support, Support::kImpossible);
  EXPECT_EQ(Ask(Mode::kSync, "adam", Membership::kFixed, "int8").support, Support::kBuilt);
  EXPECT_EQ(Ask(Mode::kSync, "adam", Membership::kElastic, "int8").support, Support::kBuilt);
}

TEST(Support, BuildsAsyncAndSspWithRulesOnTheShards) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    for (const UpdateLocation on : {UpdateLocation::kWorkers, UpdateLocation::kShards}) {
      const absl::string_view rule = RuleOf(mode, on, "adam");
      EXPECT_EQ(Ask(mode, rule, Membership::kFixed, "topk:1%+int4").support, Support::kBuilt);
      EXPECT_EQ(Ask(mode, rule, Membership::kElastic, "int8").support, Support::kBuilt);
      for (const absl::string_view codec : {"signsgd", "intsum:4", "lsh", "int8:sr/diana"}) {
        EXPECT_EQ(Ask(mode, rule, Membership::kFixed, codec).support, Support::kImpossible)
            << codec;
      }
    }
    EXPECT_EQ(Ask(mode, "sgd", Membership::kFixed, "topk:1%/dgc:0.9").support, Support::kBuilt);
  }
}

TEST(JobSpec, RepairsNoLossInPlaceWhereWorkersDoNotWait) {
  JobSpec spec;
  EXPECT_EQ(WhyNoReplay(spec), "");
  spec.exchange.mode = job::Mode::kSsp;
  EXPECT_THAT(WhyNoReplay(spec), HasSubstr("in mode ssp the data"));
}

TEST(Support, GivesAReasonForEveryRefusal) {
  for (const Mode mode : {Mode::kSync, Mode::kAsync, Mode::kSsp, Mode::kLocalSgd}) {
    for (const char* rule : {"average", "accumulate", "outer", "sgd"}) {
      for (const Membership membership : {Membership::kFixed, Membership::kElastic}) {
        const SupportAnswer answer = Ask(mode, rule, membership, "none");
        const bool built = answer.support == Support::kBuilt;
        EXPECT_EQ(answer.reason.empty(), built)
            << NameOf(mode) << " " << rule << " " << NameOf(membership);
        EXPECT_EQ(answer.key.empty(), built)
            << NameOf(mode) << " " << rule << " " << NameOf(membership);
      }
    }
  }
}

TEST(Support, DocumentShowsTheTable) {
  std::ifstream file(SLUICE_COMPRESSION_DOC);
  const std::string document((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
  // A matcher would print the whole page, so the test uses find.
  EXPECT_TRUE(document.find(SupportTableMarkdown()) != std::string::npos)
      << "docs/compression.md is outdated: run tools/update_support_table.sh. The table is now:\n"
      << SupportTableMarkdown();
}

}  // namespace
}  // namespace sluice::job
