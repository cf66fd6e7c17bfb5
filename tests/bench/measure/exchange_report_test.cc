// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;

// A worker that starts at `started` and has applied its result at `applied`, in ms on a common
// clock.
TurnReport Worker(int64_t started, int64_t ready, int64_t applied) {
  return {.started_ns = started * kMs,
          .ready_ns = ready * kMs,
          .submitted_ns = ready * kMs,
          .applied_ns = applied * kMs,
          .apply_ns = 4 * kMs,
          .bytes_up = 1'000'000,
          .bytes_down = 2'000'000,
          .encode_ns = 3 * kMs,
          .cpu_ns = 9 * kMs,
          // Receive, sum (nothing), encode, send and apply.
          .stage_cpu_ns = {1 * kMs, 0, 3 * kMs, kMs / 2, 2 * kMs},
          .peak_rss_bytes = static_cast<uint64_t>(applied) << 20};
}

ExchangeFacts TwoByTwo() {
  ExchangeFacts facts;
  facts.model = "resnet50";
  facts.workers = 2;
  facts.shards = 2;
  facts.largest_shard_share = 0.75;
  return facts;
}

// Exchanges of 10, 30 and 20 ms. The workers start and end at different times.
ExchangeSamples ThreeTurns() {
  ExchangeSamples samples;
  samples.codecs = {"topk:1%", "topk:3%"};
  samples.turns = {{{Worker(101, 101, 108), Worker(100, 100, 110)}, 0.012},
                   {{Worker(200, 200, 230), Worker(205, 205, 222)}, 0.012},
                   {{Worker(300, 300, 320), Worker(300, 300, 320)}, 0.012}};
  samples.server_peak_rss_bytes = 50 << 20;
  return samples;
}

TEST(SpreadTest, OfAnyNumberOfValues) {
  EXPECT_EQ(SpreadOf({}).median, 0);
  const Spread one = SpreadOf({7});
  EXPECT_EQ(one.min, 7);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.p95, 7);
  const Spread even = SpreadOf({4, 1, 3, 2});
  EXPECT_EQ(even.min, 1);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.p95, 4);
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(SpreadOf(hundred).median, 50.5);
  EXPECT_EQ(SpreadOf(hundred).p95, 95);
  hundred.resize(20);  // 100 ... 81
  EXPECT_EQ(SpreadOf(hundred).p95, 99);
}

TEST(ExchangeReportTest, AnExchangeIsFromTheFirstStartToTheLastResult) {
  const ExchangeFigures figures = Summarize(TwoByTwo(), ThreeTurns());
  EXPECT_DOUBLE_EQ(figures.exchange_ms.min, 10);
  EXPECT_DOUBLE_EQ(figures.exchange_ms.median, 20);
  EXPECT_DOUBLE_EQ(figures.exchange_ms.p95, 30);
  EXPECT_DOUBLE_EQ(figures.exposed_ms, 20);
  EXPECT_EQ(figures.turns, 3u);
  EXPECT_EQ(figures.worker_peak_rss_bytes, uint64_t{320} << 20);
}

TEST(ExchangeReportTest, ExposedIsFromTheLastGradientOnly) {
  ExchangeSamples samples = ThreeTurns();
  samples.computed_turns = {{{Worker(100, 150, 158), Worker(100, 152, 160)}, 0.0}};
  EXPECT_DOUBLE_EQ(Summarize(TwoByTwo(), samples).exposed_ms, 8);
  EXPECT_DOUBLE_EQ(Summarize(TwoByTwo(), samples).exchange_ms.median, 20);
}

TEST(ExchangeReportTest, TheBusiestLinkIsTheFullestShards) {
  ExchangeFacts facts = TwoByTwo();
  facts.link_bits_per_second = 1e9;
  const ExchangeFigures figures = Summarize(facts, ThreeTurns());
  // Two workers get 2 MB each, and three quarters of these bytes come from one shard.
  EXPECT_DOUBLE_EQ(figures.busiest.bytes, 3e6);
  EXPECT_EQ(figures.busiest.link, "the fullest shard's link, out");
  EXPECT_DOUBLE_EQ(*figures.floor_ms, 24);
  EXPECT_DOUBLE_EQ(figures.goodput_bits_per_second, 3e6 * 8 / 0.020);
  EXPECT_DOUBLE_EQ(*figures.goodput_fraction, 1.2);
}

TEST(ExchangeReportTest, TheBusiestLinkIsAWorkersWhereShardsAreMany) {
  ExchangeFacts facts = TwoByTwo();
  facts.largest_shard_share = 0.3;
  const ExchangeFigures figures = Summarize(facts, ThreeTurns());
  EXPECT_EQ(figures.busiest.link, "a worker's link, down");
  EXPECT_DOUBLE_EQ(figures.busiest.bytes, 2e6);
  EXPECT_FALSE(figures.floor_ms.has_value());
  EXPECT_FALSE(figures.goodput_fraction.has_value());
}

TEST(ExchangeReportTest, ProcessorTimeIsPerProcessAndPerGigabyteOfItsSide) {
  const ExchangeFigures figures = Summarize(TwoByTwo(), ThreeTurns());
  EXPECT_DOUBLE_EQ(figures.worker_cpu_seconds, 0.009);
  EXPECT_DOUBLE_EQ(*figures.server_cpu_seconds, 0.006);
  // A worker moves 3 MB in and out, and both servers together move 6 MB.
  EXPECT_DOUBLE_EQ(*figures.worker_cpu_seconds_per_gb, 0.009 / 0.003);
  EXPECT_DOUBLE_EQ(*figures.server_cpu_seconds_per_gb, 0.012 / 0.006);
}

TEST(ExchangeReportTest, StagesOfAWorkerAreMeans) {
  ExchangeSamples samples = ThreeTurns();
  samples.turns = {{{Worker(100, 101, 120), Worker(100, 103, 132)}, 0.0}};
  const ExchangeFigures figures = Summarize(TwoByTwo(), samples);
  EXPECT_DOUBLE_EQ(figures.submit_ms, 2);
  EXPECT_DOUBLE_EQ(figures.wait_ms, 20);
  EXPECT_DOUBLE_EQ(figures.apply_ms, 4);
  EXPECT_DOUBLE_EQ(figures.encode_ms, 3);
}

TEST(ExchangeReportTest, ProcessorTimeIsToldByStageWithWhatIsLeft) {
  ExchangeSamples samples = ThreeTurns();
  samples.turns[2].workers[1].stage_cpu_ns[static_cast<size_t>(protocol::Stage::kApply)] = 8 * kMs;
  for (Turn& turn : samples.turns) turn.server_stage_seconds = {0.001, 0.004, 0.003, 0.002, 0};
  ExchangeReport report{TwoByTwo(), Summarize(TwoByTwo(), samples), {}, {}};
  EXPECT_DOUBLE_EQ(
      report.figures.worker_stage_seconds[static_cast<size_t>(protocol::Stage::kApply)], 0.003);
  auto json = nlohmann::json::parse(ExchangeReportJson(report))["cpu_seconds"];
  EXPECT_EQ(json["worker_stages"].size(), 5u);
  EXPECT_DOUBLE_EQ(json["worker_stages"]["encode"], 0.003);
  EXPECT_DOUBLE_EQ(json["worker_stages"]["send"], 0.0005);
  EXPECT_DOUBLE_EQ(json["worker_stages"]["receive"], 0.001);
  EXPECT_DOUBLE_EQ(json["worker_stages"]["apply"], 0.003);
  EXPECT_NEAR(json["worker_stages"]["other"], 0.0015, 1e-9);
  // The values are for one of two servers, which used 6 ms each.
  EXPECT_EQ(json["server_stages"].size(), 5u);
  EXPECT_DOUBLE_EQ(json["server_stages"]["receive"], 0.0005);
  EXPECT_DOUBLE_EQ(json["server_stages"]["sum"], 0.002);
  EXPECT_DOUBLE_EQ(json["server_stages"]["encode"], 0.0015);
  EXPECT_DOUBLE_EQ(json["server_stages"]["send"], 0.001);
  EXPECT_NEAR(json["server_stages"]["other"], 0.001, 1e-9);
  EXPECT_THAT(FormatExchangeReport(report),
              HasSubstr("processor, a worker            ms          9.0\n"
                        "  encode                       ms          3.0\n"
                        "  send                         ms          0.5\n"
                        "  receive                      ms          1.0\n"
                        "  apply                        ms          3.0\n"
                        "  other                        ms          1.5\n"
                        "processor, a server            ms          6.0\n"
                        "  receive                      ms          0.5\n"
                        "  sum                          ms          2.0\n"
                        "  encode                       ms          1.5\n"
                        "  send                         ms          1.0\n"
                        "  other                        ms          1.0\n"));
}

TEST(ExchangeReportTest, StagesThatOneTurnLacksAreUnknown) {
  ExchangeSamples samples = ThreeTurns();
  samples.turns[0].server_stage_seconds.emplace();
  const ExchangeFigures figures = Summarize(TwoByTwo(), samples);
  EXPECT_FALSE(figures.server_stage_seconds.has_value());
  EXPECT_TRUE(figures.server_cpu_seconds.has_value());
}

TEST(ExchangeReportTest, ServersElsewhereAreUnknownNotZero) {
  ExchangeSamples samples = ThreeTurns();
  for (Turn& turn : samples.turns) turn.server_cpu_seconds.reset();
  samples.server_peak_rss_bytes.reset();
  ExchangeReport report{TwoByTwo(), Summarize(TwoByTwo(), samples), {}, {}};
  const auto json = nlohmann::json::parse(ExchangeReportJson(report));
  EXPECT_TRUE(json["cpu_seconds"]["server"].is_null());
  for (const char* stage : {"receive", "sum", "encode", "send", "other"}) {
    EXPECT_TRUE(json["cpu_seconds"]["server_stages"][stage].is_null()) << stage;
  }
  EXPECT_TRUE(json["peak_rss_bytes"]["server"].is_null());
  EXPECT_THAT(FormatExchangeReport(report),
              HasSubstr("processor, a server            ms            -"));
}

ExchangeReport WithBaselines() {
  ExchangeReport report{TwoByTwo(), Summarize(TwoByTwo(), ThreeTurns()), {}, {}};
  ExchangeSamples dense = ThreeTurns();
  dense.codecs = {"none", "none"};
  dense.turns = {{{Worker(0, 0, 250), Worker(0, 0, 250)}, 0.1}};
  report.none = Summarize(report.facts, dense);
  dense.codecs = {"fp16", "fp16"};
  dense.turns = {{{Worker(0, 0, 130), Worker(0, 0, 130)}, 0.1}};
  report.fp16 = Summarize(report.facts, dense);
  return report;
}

TEST(ExchangeReportTest, Json) {
  const auto json = nlohmann::json::parse(ExchangeReportJson(WithBaselines()));
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["workers"], 2);
  EXPECT_EQ(json["exchange_ms"]["min"], 10);
  EXPECT_EQ(json["exchange_ms"]["median"], 20);
  EXPECT_EQ(json["exchange_ms"]["p95"], 30);
  EXPECT_EQ(json["exposed_ms"], 20);
  EXPECT_EQ(json["bytes_up"], 1e6);
  EXPECT_EQ(json["bytes_down"], 2e6);
  EXPECT_TRUE(json["goodput_fraction"].is_null());
  EXPECT_DOUBLE_EQ(json["cpu_seconds"]["worker"], 0.009);
  EXPECT_EQ(json["peak_rss_bytes"]["server"], 50 << 20);
  EXPECT_EQ(json["baselines"]["none"]["exchange_ms"]["median"], 250);
  EXPECT_EQ(json["baselines"]["none"]["times_as_long"], 12.5);
  EXPECT_EQ(json["baselines"]["fp16"]["times_as_long"], 6.5);
  EXPECT_EQ(json["baselines"]["fp16"]["uplink"], "fp16");
}

TEST(ExchangeReportTest, FailureJson) {
  const auto json = nlohmann::json::parse(ExchangeFailureJson("worker 1 \"died\""));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["failure"], "worker 1 \"died\"");
}

TEST(ExchangeReportTest, TableHasAColumnForEachPairOfCodecsAndRowsForWhatWasAsked) {
  ExchangeReport report = WithBaselines();
  const std::string with = FormatExchangeReport(report);
  EXPECT_THAT(with, HasSubstr("    measured         none         fp16\n"));
  EXPECT_THAT(
      with, HasSubstr("exchange, median               ms         20.0        250.0        130.0"));
  EXPECT_THAT(with, HasSubstr("        1.00x        12.5x        6.50x\n"));
  EXPECT_THAT(with, Not(HasSubstr("exposed")));
  EXPECT_THAT(with, Not(HasSubstr("floor")));
  report.none.reset();
  report.fp16.reset();
  report.facts.compute_ms = 20;
  report.facts.link_bits_per_second = 1e9;
  report.figures = Summarize(report.facts, ThreeTurns());
  const std::string without = FormatExchangeReport(report);
  EXPECT_THAT(without, Not(HasSubstr("times as long")));
  EXPECT_THAT(without, HasSubstr("exposed, median                ms         20.0\n"));
  EXPECT_THAT(without, HasSubstr("floor of the busiest link      ms         24.0\n"));
  EXPECT_THAT(without, HasSubstr("links of 1000 Mb/s"));
}

}  // namespace
}  // namespace sluice::bench
