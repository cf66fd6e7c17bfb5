// SPDX-License-Identifier: Apache-2.0
// Tests plans that depend on measurements (control.policy bandwidth): how measurements lead to
// plans, and how a job handles plans that a lost process had announced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/control/auto.h"
#include "server/control/plan_maker.h"
#include "server/coordinator/link_tracker.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kMeasuredPlanRanks = 2;
constexpr double kCompute = 0.1;

protocol::TensorTable LargeTable() {
  return {
      {.name = "large", .shape = {1'000'000}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "small", .shape = {10}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "own", .shape = {2'000}, .strides = {}, .dtype = protocol::DType::kFloat32}};
}

protocol::CompressionSpec Compression() {
  protocol::CompressionSpec compression;
  compression.min_elements = 1000;
  compression.overrides = {{.tensors = "own", .uplink = Spec("int8"), .downlink = std::nullopt}};
  return compression;
}

job::ControlSpec Bandwidth(std::vector<const char*> candidates) {
  job::ControlSpec control{.policy = job::PolicyKind::kBandwidth};
  for (const char* candidate : candidates) control.candidates.push_back(Spec(candidate));
  return control;
}

// Returns measurements in which each rank's transfers take the time that its rate implies.
StepMeasurements Measured(std::vector<double> bytes_per_second) {
  StepMeasurements measured;
  for (const double rate : bytes_per_second) {
    RankMeasurements& rank = measured.ranks.emplace_back();
    rank.compute_s = kCompute;
    for (const double bytes : {100'000.0, 10'000.0}) {
      rank.up.push_back({.bytes = static_cast<uint64_t>(bytes), .seconds = bytes / rate});
    }
    rank.down = rank.up;
  }
  return measured;
}

// Runs `steps` steps with the same measurements. Returns the plans that the maker makes.
std::vector<PlanMaker::Plan> PlansOf(PlanMaker* maker, const StepMeasurements& measured,
                                     uint64_t steps) {
  std::vector<PlanMaker::Plan> plans;
  for (uint64_t step = 1; step <= steps; ++step) {
    if (PlanMaker::Plan plan = maker->Next(step, &measured)) plans.push_back(std::move(plan));
  }
  return plans;
}

TEST(MeasuredPlans, AllIsAsTheJobFileSaysUntilLinksAreKnown) {
  auto maker = *PlanMaker::Create(Bandwidth({"fp16", "int8", "int4", "ternary:0.5"}), Compression(),
                                  LargeTable(), kMeasuredPlanRanks);
  const PlanMaker::Plan first = maker->First();
  EXPECT_EQ(first->id, 1u);
  EXPECT_EQ(first->effective_step, 1u);
  EXPECT_TRUE(first->entries.empty());
  for (uint64_t step = 1; step < 20; ++step) EXPECT_EQ(maker->Next(step, nullptr), nullptr);
}

TEST(MeasuredPlans, SpendsWhatFitsAndLeavesSmallTensorsAndOwnCodecsAlone) {
  auto maker = *PlanMaker::Create(Bandwidth({"fp16", "int8", "int4", "ternary:0.5"}), Compression(),
                                  LargeTable(), kMeasuredPlanRanks);
  maker->First();
  // 35 ms in each direction at 100 MB/s allow 3.5 MB. fp16 needs 2 MB.
  const auto fast = PlansOf(maker.get(), Measured({100e6, 100e6}), 10);
  ASSERT_EQ(fast.size(), 1u);
  EXPECT_EQ(fast[0]->id, 2u);
  EXPECT_EQ(fast[0]->effective_step, 3u + job::kPlanDelay);
  ASSERT_EQ(fast[0]->entries.size(), 2u);
  for (const protocol::PlanEntry& entry : fast[0]->entries) {
    EXPECT_EQ(ToString(entry.codec), "fp16");
    EXPECT_EQ(entry.tensors, std::vector<uint32_t>{0});
    EXPECT_TRUE(entry.ranks.empty());
  }
  EXPECT_THAT(fast[0]->reason, HasSubstr("links are known now"));
  EXPECT_TRUE(protocol::CheckPlan(*fast[0], Compression(), LargeTable()).ok());
}

job::ControlSpec Auto(std::vector<const char*> candidates) {
  job::ControlSpec control = Bandwidth(std::move(candidates));
  control.policy = job::PolicyKind::kAuto;
  return control;
}

// Returns the codec that the plan gives the large tensor on a link of this rate, or the job file's
// codec if the plan names none.
std::string ChosenOn(double bytes_per_second) {
  auto maker = *PlanMaker::Create(Auto({"none", "int8", "topk:1%+int4"}), Compression(),
                                  LargeTable(), kMeasuredPlanRanks);
  maker->First();
  const auto plans =
      PlansOf(maker.get(), Measured({bytes_per_second, bytes_per_second}), 3 + kAutoDwell);
  if (plans.size() != 1) return absl::StrCat(plans.size(), " plans");
  EXPECT_TRUE(protocol::CheckPlan(*plans[0], Compression(), LargeTable()).ok());
  for (const protocol::PlanEntry& entry : plans[0]->entries) {
    if (entry.direction == protocol::Direction::kUplink) return ToString(entry.codec);
  }
  return ToString(Compression().uplink);
}

TEST(MeasuredPlans, AutoTakesWhatIsFastestAndDenseWhereBytesCostLittle) {
  EXPECT_EQ(ChosenOn(10e9), "none");
  EXPECT_EQ(ChosenOn(50e6), "int8");
  EXPECT_EQ(ChosenOn(0.2e6), "topk:1%+int4");
}

TEST(MeasuredPlans, ASlowLinkTakesNothingFromOthersUp) {
  auto maker = *PlanMaker::Create(Bandwidth({"topk:1%+int4"}), Compression(), LargeTable(), 3);
  maker->First();
  const auto plans = PlansOf(maker.get(), Measured({2e6, 2e6, 0.5e6}), 3);
  ASSERT_EQ(plans.size(), 1u);
  const std::vector<protocol::PlanEntry>& entries = plans[0]->entries;
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].ranks, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(entries[1].ranks, std::vector<uint32_t>{2});
  EXPECT_EQ(entries[2].direction, protocol::Direction::kDownlink);
  EXPECT_GT(entries[0].codec.level, 3 * entries[1].codec.level);
  EXPECT_NEAR(entries[2].codec.level / entries[1].codec.level, 1, 0.1)
      << "the slowest rank determines the downlink's codec";
  // Densities have only two digits, so their text form on the wire is exact and short.
  EXPECT_EQ(*compress::ParseCodecSpec(ToString(entries[0].codec)), entries[0].codec);
  EXPECT_LE(ToString(entries[0].codec).size(), std::string("topk:0.25%+int4").size());
}

TEST(MeasuredPlans, NumbersGoOnAfterOnesThatWereMadeElsewhere) {
  auto maker = *PlanMaker::Create(Bandwidth({"topk:1%+int4"}), Compression(), LargeTable(), 1);
  maker->Resume(4, 11);
  protocol::CompressionPlan taken;
  taken.id = 7;
  maker->Took(taken.id);
  const StepMeasurements measured = Measured({2e6});
  PlanMaker::Plan made;
  for (uint64_t step = 12; made == nullptr && step < 20; ++step)
    made = maker->Next(step, &measured);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->id, 8u);
}

TEST(MeasuredPlans, WithNothingToChooseForItIsRefused) {
  protocol::CompressionSpec compression = Compression();
  compression.min_elements = 10'000'000;
  EXPECT_THAT(
      PlanMaker::Create(Bandwidth({"fp16"}), compression, LargeTable(), 1).status().message(),
      HasSubstr("below compression.min_elements"));
}

TEST(MeasuredPlans, AStepIsMeasuredWhenAllHaveReportedIt) {
  LinkTracker book(2);
  const auto report = [&](uint32_t rank, uint64_t step) {
    book.Arrived(rank, step, absl::UnixEpoch(), absl::ZeroDuration());
    book.Report(rank, {{.bytes = 1000, .seconds = 0.5}},
                {.step = step, .round_trip_s = 0.2, .compute_s = 0.25});
  };
  report(0, 1);
  EXPECT_FALSE(book.TakeStep().has_value());
  report(1, 1);
  std::optional<StepMeasurements> measured = book.TakeStep();
  ASSERT_TRUE(measured.has_value());
  EXPECT_FALSE(book.TakeStep().has_value()) << "a step is taken only once";
  ASSERT_EQ(measured->ranks.size(), 2u);
  EXPECT_EQ(measured->ranks[1].compute_s, 0.25);
  ASSERT_EQ(measured->ranks[1].up.size(), 2u) << "the round trip counts as a probe";
  EXPECT_EQ(measured->ranks[1].up[0].bytes, 1000u);
  EXPECT_DOUBLE_EQ(measured->ranks[1].up[0].seconds, 0.6);
  EXPECT_TRUE(measured->ranks[1].down.empty());
  ScaleTransfers(3, 3, &*measured);
  EXPECT_EQ(measured->ranks[0].up[0].bytes, 3000u);
  EXPECT_DOUBLE_EQ(measured->ranks[0].up[0].seconds, 0.6);
  EXPECT_FALSE(measured->validation.has_value());
  report(0, 2);
  report(1, 2);
  book.Rewind();
  EXPECT_FALSE(book.TakeStep().has_value()) << "the reports precede the rollback";
}

TEST(MeasuredPlans, ATestOfRank0CountsOnceAndIsNotLost) {
  LinkTracker book(2);
  const auto report = [&](uint32_t rank, uint64_t step, std::optional<double> tested) {
    book.Arrived(rank, step, absl::UnixEpoch(), absl::ZeroDuration());
    book.Report(rank, {}, {.step = step, .tested = tested});
  };
  report(0, 1, std::nullopt);
  report(1, 1, 0.25);
  EXPECT_FALSE(book.TakeStep()->validation.has_value()) << "only rank 0's tests count";
  report(1, 2, std::nullopt);
  report(0, 2, 0.5);
  report(0, 2, 0.75);  // This report is a repeat.
  report(0, 3, std::nullopt);
  report(1, 3, std::nullopt);
  std::optional<StepMeasurements> measured = book.TakeStep();
  ASSERT_TRUE(measured.has_value());
  EXPECT_EQ(measured->step, 3u);
  EXPECT_EQ(measured->validation->metric, 50) << "the test of step 2 has not been taken yet";
  report(0, 4, std::nullopt);
  report(1, 4, std::nullopt);
  EXPECT_FALSE(book.TakeStep()->validation.has_value());
}

job::ControlSpec Accuracy() {
  return {.policy = job::PolicyKind::kAccuracy,
          .reference = {{.step = 2, .metric = 90}},
          .tolerance = 1};
}

StepMeasurements Tested(double percent, uint64_t step = 4) {
  StepMeasurements measured = Measured({1e6, 1e6});
  measured.validation = {.step = step, .metric = percent};
  return measured;
}

TEST(MeasuredPlans, AccuracySetsDensitiesOfWhatIsSparseAlone) {
  protocol::CompressionSpec compression = Compression();
  compression.uplink = Spec("topk:1%+int4");
  compression.downlink = Spec("fp16");
  auto maker = *PlanMaker::Create(Accuracy(), compression, LargeTable(), kMeasuredPlanRanks);
  EXPECT_TRUE(maker->First()->entries.empty()) << "the first plan keeps the job file's codecs";
  const StepMeasurements untested = Measured({1e6, 1e6});
  const StepMeasurements low = Tested(80);
  EXPECT_EQ(maker->Next(1, &untested), nullptr);
  const StepMeasurements early = Tested(80, 1);
  EXPECT_EQ(maker->Next(2, &early), nullptr) << "the reference begins after step 1";
  EXPECT_EQ(maker->Next(3, &untested), nullptr);
  EXPECT_EQ(maker->Next(4, &low), nullptr) << "a single low test has no effect";
  const PlanMaker::Plan more = maker->Next(5, &low);
  ASSERT_NE(more, nullptr);
  EXPECT_EQ(more->effective_step, 5u + job::kPlanDelay);
  ASSERT_EQ(more->entries.size(), 1u) << "the downlink stays fp16";
  EXPECT_EQ(more->entries[0].direction, protocol::Direction::kUplink);
  EXPECT_EQ(ToString(more->entries[0].codec), "topk:8%+int4")
      << "the metric is far below the reference";
  EXPECT_EQ(more->entries[0].tensors, std::vector<uint32_t>{0})
      << "small tensors and overrides keep their codecs";
  EXPECT_THAT(more->reason, AllOf(HasSubstr("80.00 % at step 4"), HasSubstr("90.00 % at step 4")));
  EXPECT_TRUE(protocol::CheckPlan(*more, compression, LargeTable()).ok());
}

TEST(MeasuredPlans, DensitiesAreShortPercentages) {
  for (const auto& [before, after] :
       {std::pair("topk:1.1%", "topk:8.8%"), {"topk:0.07%", "topk:0.56%"}}) {
    protocol::CompressionSpec compression = Compression();
    compression.uplink = Spec(before);
    auto maker = *PlanMaker::Create(Accuracy(), compression, LargeTable(), kMeasuredPlanRanks);
    maker->First();
    const StepMeasurements low = Tested(80);
    EXPECT_EQ(maker->Next(4, &low), nullptr);
    EXPECT_EQ(ToString(maker->Next(5, &low)->entries[0].codec), after);
  }
}

TEST(MeasuredPlans, AccuracySetsOneDensityBothWaysAndLeavesTheRestOfACodec) {
  protocol::CompressionSpec compression = Compression();
  compression.uplink = Spec("topk:1%+int4/noef");
  compression.downlink = Spec("topk_exact:1%");
  auto maker = *PlanMaker::Create(Accuracy(), compression, LargeTable(), kMeasuredPlanRanks);
  maker->First();
  const StepMeasurements good = Tested(91);
  const auto plans = PlansOf(maker.get(), good, 5);
  ASSERT_EQ(plans.size(), 1u) << "three good reports in a row lower the density";
  ASSERT_EQ(plans[0]->entries.size(), 2u);
  EXPECT_EQ(ToString(plans[0]->entries[0].codec), "topk:0.5%+int4/noef");
  EXPECT_EQ(ToString(plans[0]->entries[1].codec), "topk_exact:0.5%");
}

TEST(MeasuredPlans, AccuracyNeedsADensityAndAReference) {
  protocol::CompressionSpec compression = Compression();
  EXPECT_THAT(PlanMaker::Create(Accuracy(), compression, LargeTable(), 1).status().message(),
              HasSubstr("none has no density"));
  compression.uplink = compression.downlink = Spec("topk:1%");
  EXPECT_THAT(
      PlanMaker::Create({.policy = job::PolicyKind::kAccuracy}, compression, LargeTable(), 1)
          .status()
          .message(),
      HasSubstr("accuracy: the reference has 0 points"));
}

// --- Reports to a restarted shard 0 ---

ShardOptions MeasuredShard(uint32_t shard, bool replay) {
  ShardOptions options = SmallShard(kMeasuredPlanRanks);
  options.exchange.control = Bandwidth({"fp16", "int8"});
  options.replay_bytes = 1 << 20;
  options.replay = replay;
  if (shard == 1) {
    options.shard = 1;
    for (protocol::Chunk& chunk : options.layout.chunks) chunk.shard = 1;
    options.layout.bundles.insert(options.layout.bundles.begin(), std::vector<protocol::Bundle>());
  }
  return options;
}

std::shared_ptr<const protocol::CompressionPlan> PlanFrom(uint64_t step, uint64_t id,
                                                          const char* codec) {
  auto plan = std::make_shared<protocol::CompressionPlan>();
  plan->id = id;
  plan->effective_step = step;
  plan->entries = {
      {.direction = protocol::Direction::kDownlink, .codec = Spec(codec), .tensors = {0, 1}}};
  return plan;
}

protocol::ExchangeRequest SentAgain(uint32_t rank, uint64_t step, bool answered,
                                    std::shared_ptr<const protocol::CompressionPlan> announced) {
  protocol::ExchangeRequest exchange = Contribution(rank, step, 0, 1.5f);
  exchange.plan_id = 1;
  exchange.answered = answered;
  exchange.announced = std::move(announced);
  return exchange;
}

// Sends the request that closes a bundle. Returns the plan that the result announces, or null.
std::shared_ptr<const protocol::CompressionPlan> Announced(ShardUnderTest* shard,
                                                           protocol::ExchangeRequest exchange) {
  for (const ShardEffect& effect : shard->Send(std::move(exchange))) {
    const auto* reply = std::get_if<SendReply>(&effect);
    if (reply != nullptr && reply->answer->outcome == protocol::Outcome::kResult)
      return reply->answer->plan;
  }
  ADD_FAILURE() << "the bundle did not close";
  return nullptr;
}

TEST(MeasuredPlans, WhatOneWorkerWasToldHoldsForAll) {
  ShardUnderTest shard(MeasuredShard(0, /*replay=*/true));
  const auto told = PlanFrom(3, 2, "int8");
  shard.Send(SentAgain(0, 1, true, told));
  const auto announced = Announced(&shard, SentAgain(1, 1, false, nullptr));
  ASSERT_NE(announced, nullptr);
  EXPECT_EQ(*announced, *told);
}

TEST(MeasuredPlans, ThatThereIsNoneHoldsLikewise) {
  for (const bool answered : {false, true}) {
    ShardUnderTest shard(MeasuredShard(0, /*replay=*/true));
    std::shared_ptr<const protocol::CompressionPlan> announced;
    for (uint64_t step = 1; step <= 3; ++step) {
      shard->Measured(Measured({1e9, 1e9}));
      shard.Send(SentAgain(0, step, answered && step == 3, nullptr));
      announced = Announced(&shard, SentAgain(1, step, false, nullptr));
      protocol::ExchangeRequest rest = Contribution(0, step, 1, 1.5f);
      rest.plan_id = 1;
      shard.Send(rest);
      rest = Contribution(1, step, 1, 1.5f);
      rest.plan_id = 1;
      shard.Send(rest);
    }
    EXPECT_EQ(announced == nullptr, answered) << "the links are known from step 3 on";
  }
}

TEST(MeasuredPlans, WhatWorkersSayOfAnnouncementsIsChecked) {
  const auto refusal = [](const ShardOptions& options, const protocol::ExchangeRequest& exchange) {
    ShardUnderTest shard(options);
    const protocol::ExchangeReply answer = shard.Ask(exchange);
    EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
    return answer.message;
  };
  const auto told = PlanFrom(3, 2, "int8");
  EXPECT_THAT(refusal(MeasuredShard(0, false), SentAgain(0, 1, true, told)),
              HasSubstr("only shard 0 accepts that"));
  EXPECT_THAT(refusal(MeasuredShard(1, true), SentAgain(0, 1, true, told)),
              HasSubstr("only shard 0 accepts that"));
  EXPECT_THAT(refusal(MeasuredShard(0, true), SentAgain(0, 1, false, told)),
              HasSubstr("only shard 0 accepts that"));
  EXPECT_THAT(refusal(MeasuredShard(0, true), SentAgain(0, 1, true, PlanFrom(4, 2, "int8"))),
              HasSubstr("it begins with step 4"));
  EXPECT_THAT(refusal(MeasuredShard(0, true), SentAgain(0, 1, true, PlanFrom(3, 2, "powersgd:2"))),
              HasSubstr("no plan can have"));
  ShardUnderTest shard(MeasuredShard(0, true));
  shard.Send(SentAgain(0, 1, true, told));
  EXPECT_THAT(shard.Ask(SentAgain(1, 1, true, nullptr)).message,
              HasSubstr("another worker reported a different plan"));
}

// The announced plan numbers decrease, which correct workers never report. The shard must end the
// job and keep running.
TEST(MeasuredPlans, AnnouncementsThatDoNotFitTogetherEndTheJobAndNotTheProcess) {
  ShardUnderTest shard(MeasuredShard(0, /*replay=*/true));
  shard.Send(SentAgain(0, 1, true, PlanFrom(3, 1, "int8")));
  bool alarmed = false;
  for (const ShardEffect& effect : shard.Send(SentAgain(1, 1, false, nullptr))) {
    alarmed = alarmed || std::holds_alternative<Alarm>(effect);
  }
  EXPECT_TRUE(alarmed);
}

// All ranks that knew a plan are lost, together with the shard 0 process that made it. If another
// shard knows that plan and receives a different one, it must ask for a rollback.
TEST(MeasuredPlans, AnotherShardThatWasToldOfAnotherPlanAsksForTheWayBack) {
  ShardUnderTest shard(MeasuredShard(1, /*replay=*/false));
  protocol::ExchangeRequest exchange = SentAgain(0, 2, false, nullptr);
  exchange.acked_step = 0;
  exchange.plan = PlanFrom(3, 2, "int8");
  shard.Send(exchange);
  exchange = SentAgain(1, 2, false, nullptr);
  exchange.acked_step = 0;
  exchange.plan = PlanFrom(3, 2, "fp16");
  bool back = false;
  for (const ShardEffect& effect : shard.Send(exchange)) {
    const auto* other = std::get_if<NotReproducible>(&effect);
    if (other == nullptr) continue;
    back = true;
    EXPECT_THAT(other->text, HasSubstr("contradicts plan 2"));
  }
  EXPECT_TRUE(back);
}

// Returns true if shard 1 asks for a rollback when a successor of rank 0 sends this request.
bool AsksForTheWayBack(ShardUnderTest* shard, protocol::ExchangeRequest exchange, const char* why) {
  EXPECT_TRUE((*shard)->SetMembership(2, {50, 101}).ok());
  exchange.sender.incarnation = 50;
  exchange.sender.generation = 2;
  exchange.acked_step = 0;
  for (const ShardEffect& effect : shard->Send(std::move(exchange))) {
    const auto* other = std::get_if<NotReproducible>(&effect);
    if (other == nullptr) continue;
    EXPECT_THAT(other->text, HasSubstr(why));
    return true;
  }
  return false;
}

// Closes steps 1 to `steps`. The first requests of step 2 contain a plan for step 3.
void CloseSteps(ShardUnderTest* shard, uint64_t steps,
                const std::shared_ptr<const protocol::CompressionPlan>& plan) {
  for (uint64_t step = 1; step <= steps; ++step) {
    for (uint32_t rank = 0; rank < kMeasuredPlanRanks; ++rank) {
      for (uint32_t bundle = 0; bundle < 2; ++bundle) {
        protocol::ExchangeRequest exchange = Contribution(rank, step, bundle, 1.5f);
        exchange.plan_id = plan != nullptr && step > 2 ? plan->id : 1;
        if (bundle == 0 && step == 2) exchange.plan = plan;
        shard->Send(exchange);
      }
    }
  }
  ASSERT_EQ((*shard)->Stats().open_step, steps + 1);
}

TEST(MeasuredPlans, APlanForAStepThatHasBegunWithoutItTakesTheWayBack) {
  ShardUnderTest shard(MeasuredShard(1, /*replay=*/false));
  CloseSteps(&shard, 2, nullptr);
  protocol::ExchangeRequest exchange = SentAgain(0, 2, false, nullptr);
  exchange.plan = PlanFrom(3, 2, "int8");
  EXPECT_TRUE(AsksForTheWayBack(&shard, exchange, "begun without it"));
}

TEST(MeasuredPlans, AResultThatWasCodedByAnotherPlanTakesTheWayBack) {
  ShardUnderTest shard(MeasuredShard(1, /*replay=*/false));
  CloseSteps(&shard, 3, PlanFrom(3, 2, "int8"));
  protocol::ExchangeRequest exchange = SentAgain(0, 3, false, nullptr);
  EXPECT_TRUE(AsksForTheWayBack(&shard, exchange, "plan 1, and the result"));
}

}  // namespace
}  // namespace sluice::server
