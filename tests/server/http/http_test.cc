// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/http/metrics_text.h"
#include "server/http/server_pages.h"
#include "server/http/status_json.h"
#include "server/http/status_page.h"

namespace sluice::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Json = nlohmann::json;

HttpView ExampleView() {
  HttpView view{.job_name = "de<m>o", .software_version = "0.1"};
  view.stats.bytes_in = 10;
  view.stats.dense_bytes_in = 1000;
  view.stats.wait_counts[0] = 2;
  view.stats.wait_counts[kWaitBoundsSeconds.size()] = 1;
  view.stats.wait_seconds = 400;
  view.stages[static_cast<size_t>(protocol::Stage::kEncode)] = 1.5;
  view.job.emplace();
  view.job->phase = protocol::JobPhase::kFailed;
  view.job->failure = "rank 1 <script>";
  view.job->members.push_back({.rank = 0, .host = "\"h\"", .joined = true});
  view.job->members[0].progress.bytes_up = 10;
  view.job->members[0].progress.dense_bytes_up = 1000;
  return view;
}

TEST(MetricsText, TellsStalenessWhereWorkersDoNotWait) {
  HttpView view = ExampleView();
  EXPECT_THAT(MetricsText(view), Not(HasSubstr("staleness")));
  view.stats.publications = 7;
  view.stats.exact_results = 2;
  view.stats.staleness_counts[0] = 3;
  view.stats.staleness_counts[2] = 1;
  view.stats.staleness_total = 2;
  const std::string text = MetricsText(view);
  const std::string labels = "{training_job=\"de<m>o\",shard=\"0\"";
  EXPECT_THAT(text, HasSubstr("sluice_staleness_steps_count" + labels + "} 4"));
  EXPECT_THAT(text, HasSubstr("sluice_staleness_steps_sum" + labels + "} 2"));
  EXPECT_THAT(text, HasSubstr("sluice_staleness_steps_bucket" + labels + ",le=\"1\"} 3"));
  EXPECT_THAT(text, HasSubstr("sluice_publications_total" + labels + "} 7"));
  EXPECT_THAT(text, HasSubstr("sluice_exact_results_total" + labels + "} 2"));
}

TEST(MetricsText, TellsTheGainOfAnOuterOptimizerOnceItIsKnown) {
  HttpView view = ExampleView();
  EXPECT_THAT(MetricsText(view), Not(HasSubstr("sluice_outer")));
  EXPECT_TRUE(Json::parse(StatusJson(view))["this_shard"]["outer_gain"].is_null());
  view.stats.outer_correlation = 0.5;
  view.stats.outer_gain = 1.75;
  const std::string text = MetricsText(view);
  const std::string labels = "{training_job=\"de<m>o\",shard=\"0\"";
  EXPECT_THAT(text, HasSubstr("sluice_outer_correlation" + labels + "} 0.5"));
  EXPECT_THAT(text, HasSubstr("sluice_outer_gain" + labels + "} 1.75"));
  const Json own = Json::parse(StatusJson(view))["this_shard"];
  EXPECT_EQ(own["outer_correlation"], 0.5);
  EXPECT_EQ(own["outer_gain"], 1.75);
}

TEST(MetricsText, NamesCarryJobAndShard) {
  const std::string text = MetricsText(ExampleView());
  EXPECT_THAT(text, HasSubstr("sluice_uplink_bytes_total{training_job=\"de<m>o\",shard=\"0\"} 10"));
  EXPECT_THAT(text, HasSubstr("sluice_build_info{"));
  EXPECT_THAT(text, HasSubstr("sluice_contributions_refused_total{training_job=\"de<m>o\",shard="
                              "\"0\",reason=\"busy\"}"));
  EXPECT_THAT(text, HasSubstr("le=\"+Inf\"} 3"));
  EXPECT_THAT(
      text,
      HasSubstr("sluice_aggregation_wait_seconds_count{training_job=\"de<m>o\",shard=\"0\"} 3"));
  EXPECT_THAT(text, HasSubstr("phase=\"failed\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_stage_cpu_seconds_total{training_job=\"de<m>o\",shard=\"0\","
                              "stage=\"encode\"} 1.5"));
  EXPECT_THAT(text, Not(HasSubstr("stage=\"apply\"")));
}

TEST(MetricsText, TellsLinksThatAreKnownAndHowLongRequestsWait) {
  HttpView view = ExampleView();
  EXPECT_THAT(MetricsText(view), Not(HasSubstr("sluice_link_rate_bytes_per_second{")));
  view.links.ranks.resize(100);
  view.links.ranks[1] = {.up_rate = 1e6,
                         .up_latency_s = 0.01,
                         .down_rate = 2e6,
                         .compute_late_s = 3,
                         .network_late_s = 4};
  view.links.ranks[99].up_rate = 1;
  view.links.queue_counts[2] = 5;
  view.links.queue_counts.back() = 1;
  view.links.queue_seconds = 7;
  const std::string text = MetricsText(view);
  const std::string labels = "{training_job=\"de<m>o\",shard=\"0\"";
  const std::string rank = labels + ",rank=\"1\"";
  EXPECT_THAT(
      text, HasSubstr("sluice_link_rate_bytes_per_second" + rank + ",direction=\"up\"} 1000000\n"));
  EXPECT_THAT(text, HasSubstr("sluice_link_rate_bytes_per_second" + rank +
                              ",direction=\"down\"} 2000000\n"));
  EXPECT_THAT(text, HasSubstr("sluice_link_latency_seconds" + rank + ",direction=\"up\"} 0.01"));
  EXPECT_THAT(text, HasSubstr("sluice_link_latency_seconds" + rank + ",direction=\"down\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("sluice_link_latency_seconds" + labels + ",rank=\"0\"")));
  EXPECT_THAT(text, Not(HasSubstr("rank=\"99\"")));
  EXPECT_THAT(text, HasSubstr("sluice_queue_delay_seconds_count" + labels + "} 6"));
  EXPECT_THAT(text, HasSubstr("sluice_queue_delay_seconds_sum" + labels + "} 7"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_late_seconds_total" + rank + ",cause=\"compute\"} 3"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_late_seconds_total" + rank + ",cause=\"network\"} 4"));
}

TEST(MetricsText, TellsMembersByStateAndRanksUpToALimit) {
  HttpView view = ExampleView();
  view.job->members.resize(100);
  view.job->members[1] = {
      .rank = 1, .host = "", .joined = true, .lost = true, .waited_seconds = 2.5};
  view.job->members[2] = {.rank = 2, .host = "", .joined = true, .left = true};
  for (uint32_t rank = 3; rank < 100; ++rank) view.job->members[rank].rank = rank;
  view.job->generation = 5;
  view.job->lost_workers = 3;
  view.job->lost_residual_energy = 0.25;
  view.cpu_seconds = 12.5;
  const std::string text = MetricsText(view);
  const std::string labels = "{training_job=\"de<m>o\",shard=\"0\"";
  EXPECT_THAT(text, HasSubstr("sluice_members" + labels + ",state=\"awaited\"} 97"));
  EXPECT_THAT(text, HasSubstr("sluice_members" + labels + ",state=\"here\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_members" + labels + ",state=\"lost\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_members" + labels + ",state=\"left\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_generation" + labels + "} 5"));
  EXPECT_THAT(text, HasSubstr("sluice_lost_workers_total" + labels + "} 3"));
  EXPECT_THAT(text, HasSubstr("sluice_lost_residual_energy_total" + labels + "} 0.25"));
  EXPECT_THAT(text, HasSubstr("sluice_cpu_seconds_total" + labels + "} 12.5"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_waited_seconds_total" + labels + ",rank=\"1\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_step" + labels + ",rank=\"63\"}"));
  EXPECT_THAT(text, Not(HasSubstr("rank=\"64\"")));
}

TEST(MetricsText, TellsWhatBecameOfSnapshots) {
  HttpView view = ExampleView();
  EXPECT_THAT(MetricsText(view), Not(HasSubstr("sluice_snapshot")));
  view.snapshots = SnapshotStats{.failed = 1};
  const std::string labels = "{training_job=\"de<m>o\",shard=\"0\"";
  EXPECT_THAT(MetricsText(view),
              HasSubstr("sluice_snapshots_total" + labels + ",result=\"failed\"} 1"));
  EXPECT_THAT(MetricsText(view), Not(HasSubstr("sluice_snapshot_bytes")));
  view.snapshots = SnapshotStats{.written = 2, .last_bytes = 4096, .last_seconds = 0.5};
  EXPECT_THAT(MetricsText(view), HasSubstr("sluice_snapshot_bytes" + labels + "} 4096"));
  EXPECT_THAT(MetricsText(view), HasSubstr("sluice_snapshot_duration_seconds" + labels + "} 0.5"));
}

HttpView ViewWithCheckpoints() {
  HttpView view = ExampleView();
  view.job->has_checkpoints = true;
  view.job->phase = protocol::JobPhase::kRecovering;
  view.job->term = 3;
  view.job->checkpoint_step = 1000;
  view.job->checkpoint_age = absl::Milliseconds(61500);
  view.job->rollbacks = 1;
  view.job->last_rollback = "rank 1 (host <b>) did not report";
  view.job->recovery_class = RecoveryClass::kRollback;
  view.job->recovery_reason = "rank 0 (host <c>) keeps too little";
  view.job->repairs = 2;
  view.job->last_repair = "shard 1 (host <d>) was restarted";
  view.job->shards.push_back({.shard = 1, .address = "h", .lost = true});
  return view;
}

TEST(MetricsText, SurvivalIsShownOfJobsWithCheckpointsOnly) {
  const std::string text = MetricsText(ViewWithCheckpoints());
  const std::string labels = "{training_job=\"de<m>o\",shard=\"0\"";
  EXPECT_THAT(text, HasSubstr("sluice_checkpoint_step" + labels + "} 1000"));
  EXPECT_THAT(text, HasSubstr("sluice_checkpoint_age_seconds" + labels + "} 61.5"));
  EXPECT_THAT(text, HasSubstr("sluice_checkpoint_last_attempt_failed" + labels + "} 0"));
  EXPECT_THAT(text, HasSubstr("sluice_term" + labels + "} 3"));
  EXPECT_THAT(text, HasSubstr("sluice_rollbacks_total" + labels + "} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_job_phase" + labels + ",phase=\"recovering\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_repairs_total" + labels + "} 2"));
  EXPECT_THAT(text, HasSubstr("sluice_recovery_class" + labels + ",class=\"rollback\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_recovery_class" + labels + ",class=\"replay\"} 0"));
  EXPECT_THAT(text, HasSubstr("sluice_missing_processes" + labels + ",kind=\"shard\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_missing_processes" + labels + ",kind=\"worker\"} 0"));
  const std::string without = MetricsText(ExampleView());
  EXPECT_THAT(without, Not(HasSubstr("sluice_checkpoint")));
  EXPECT_THAT(without, Not(HasSubstr("phase=\"recovering\"")));
}

Json ParsedStatus(const HttpView& view) { return Json::parse(StatusJson(view)); }

TEST(StatusJson, ShowsCheckpointsAndTheLastRollback) {
  const Json checkpoint = ParsedStatus(ViewWithCheckpoints())["checkpoint"];
  EXPECT_EQ(checkpoint["step"], 1000);
  EXPECT_EQ(checkpoint["age_seconds"], 61.5);
  EXPECT_EQ(checkpoint["term"], 3);
  EXPECT_EQ(checkpoint["rollbacks"], 1);
  EXPECT_EQ(checkpoint["repairs"], 2);
  EXPECT_EQ(checkpoint["recovery_class"], "rollback");
  EXPECT_EQ(checkpoint["recovery_reason"], "rank 0 (host <c>) keeps too little");
  EXPECT_EQ(checkpoint["last_rollback"], "rank 1 (host <b>) did not report");
  EXPECT_EQ(checkpoint["last_repair"], "shard 1 (host <d>) was restarted");
  EXPECT_EQ(ParsedStatus(ViewWithCheckpoints())["servers"][0]["state"], "lost");
  EXPECT_TRUE(ParsedStatus(ExampleView())["checkpoint"].is_null());
}

TEST(StatusJson, ShowsThePlanThatHoldsAndTheNewestFirst) {
  HttpView view = ExampleView();
  PlanLog log;
  log.Add({.id = 1, .effective_step = 1, .reason = "the schedule begins"});
  log.Add({.id = 2, .effective_step = 50, .reason = "half of it is over"});
  view.job->codecs = log.codecs();
  view.job->members[0].progress.step = 48;
  Json compression = ParsedStatus(view)["compression"];
  EXPECT_EQ(compression["plan"], 1);
  EXPECT_EQ(compression["plans_made"], 2);
  ASSERT_EQ(compression["plans"].size(), 2u);
  EXPECT_EQ(compression["plans"][0]["reason"], "half of it is over");
  view.job->members[0].progress.step = 49;  // The worker is now in step 50.
  EXPECT_EQ(ParsedStatus(view)["compression"]["plan"], 2);
  EXPECT_THAT(MetricsText(view),
              HasSubstr("sluice_plan_id{training_job=\"de<m>o\",shard=\"0\"} 2"));
}

TEST(MetricsText, TellsWhatThePlanComesToWhereThatIsKnown) {
  HttpView view = ExampleView();
  PlanLog log;
  log.Add({.id = 1, .effective_step = 1});
  view.job->codecs = log.codecs();
  EXPECT_THAT(MetricsText(view), Not(HasSubstr("sluice_plan_uplink_bytes")));
  log.Add({.id = 2, .effective_step = 50}, PlanBytes{.up = std::vector<double>(100, 8), .down = 9});
  view.job->codecs = log.codecs();
  const std::string text = MetricsText(view);
  const std::string labels = "{training_job=\"de<m>o\",shard=\"0\"";
  EXPECT_THAT(text, HasSubstr("sluice_plan_uplink_bytes" + labels + ",rank=\"63\"} 8\n"));
  EXPECT_THAT(text, Not(HasSubstr("sluice_plan_uplink_bytes" + labels + ",rank=\"64\"}")));
  EXPECT_THAT(text, HasSubstr("sluice_plan_downlink_bytes" + labels + "} 9\n"));
}

TEST(StatusJson, TellsLinksThatAreKnown) {
  HttpView view = ExampleView();
  EXPECT_TRUE(ParsedStatus(view)["workers"][0]["uplink_rate"].is_null());
  EXPECT_TRUE(ParsedStatus(view)["workers"][0]["uplink_latency_seconds"].is_null());
  view.job->members[0].link = {.up_rate = 1e6, .up_latency_s = 0.01, .down_rate = 2e6};
  const Json worker = ParsedStatus(view)["workers"][0];
  EXPECT_EQ(worker["uplink_rate"], 1e6);
  EXPECT_EQ(worker["uplink_latency_seconds"], 0.01);
  EXPECT_EQ(worker["downlink_rate"], 2e6);
  EXPECT_EQ(worker["downlink_latency_seconds"], 0);
}

TEST(StatusJson, OfAnotherShardIsWithoutTheJob) {
  HttpView view = ExampleView();
  view.job.reset();
  view.shard = 1;
  view.shards = 2;
  const Json status = ParsedStatus(view);
  EXPECT_FALSE(status.contains("phase"));
  EXPECT_EQ(status["shard"], 1);
  EXPECT_EQ(status["this_shard"]["uplink_uncompressed_bytes"], 1000);
}

TEST(StatusJson, TellsWorkersAndHistory) {
  HttpView view = ExampleView();
  view.job->members[0].progress.loss = std::numeric_limits<double>::quiet_NaN();
  view.job->members[0].progress.seconds_left = 90;
  view.report = JobReport{
      .warnings = {{JobWarning::Kind::kSlow, "worker 0 waits"}},
      .history = {{.seconds = 1, .step = 7, .loss = 0.123456789},
                  {.seconds = 2, .step = 9, .split = StepSplit{.compute = 1, .transfer = 2}}},
      .paces = {MemberPace{.split = {.wait = 0.5}, .bytes_up_per_step = 12}}};
  const Json status = ParsedStatus(view);
  EXPECT_EQ(status["phase"], "failed");
  EXPECT_EQ(status["failure"], "rank 1 <script>");
  EXPECT_EQ(status["seconds_left"], 90);
  EXPECT_EQ(status["warnings"][0]["kind"], "slow");
  const Json worker = status["workers"][0];
  EXPECT_EQ(worker["uplink_ratio"], 100);
  EXPECT_TRUE(worker["loss"].is_null());
  EXPECT_TRUE(worker["validation_metric"].is_null());
  EXPECT_EQ(worker["step_seconds"]["wait"], 0.5);
  EXPECT_EQ(worker["uplink_bytes_per_step"], 12);
  const Json history = status["history"];
  EXPECT_EQ(history["step"], Json({7, 9}));
  EXPECT_EQ(history["loss"], Json({0.12346, nullptr}));
  EXPECT_EQ(history["step_transfer_seconds"], Json({nullptr, 2}));
  for (const auto& [name, column] : history.items()) EXPECT_EQ(column.size(), 2u) << name;
}

TEST(StatusJson, ShowsAtMostSixtyFourWorkers) {
  HttpView view = ExampleView();
  view.job->members.resize(100);
  const Json status = ParsedStatus(view);
  EXPECT_EQ(status["workers"].size(), 64u);
  EXPECT_EQ(status["workers_total"], 100);
}

TEST(StatusJson, IsValidWhateverOthersWrote) {
  HttpView view = ExampleView();
  view.job->members[0].host = "\xff\"\n\x01</script>";
  EXPECT_THAT(ParsedStatus(view)["workers"][0]["host"].get<std::string>(), HasSubstr("</script>"));
}

TEST(StatusPage, AllowsItsOwnScriptAndStyleAlone) {
  const net::HttpAnswer page = ServerPage(
      "/", [] { return ExampleView(); }, [] { return std::string(); });
  EXPECT_THAT(page.policy, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(page.policy, HasSubstr("style-src 'sha256-"));
  EXPECT_THAT(page.policy, Not(HasSubstr("unsafe")));
  // Hashes in the policy cover elements but not attributes.
  EXPECT_THAT(page.body, Not(HasSubstr(" style=")));
  EXPECT_THAT(page.body, Not(HasSubstr(" onclick=")));
  EXPECT_THAT(page.body, Not(HasSubstr("setAttribute(\"style\"")));
}

TEST(StatusPage, IsOneFileThatTakesNothingFromElsewhere) {
  const std::string page(StatusPage());
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("innerHTML"))) << "foreign input must be inserted as text";
  for (const char* address : {"href=\"http", "url(", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(address)));
  }
}

TEST(ServerPage, IsOfItsPaths) {
  HttpView view = ExampleView();
  const auto get = [&](const char* path) {
    return ServerPage(
        path, [&] { return view; }, [] { return std::string(); });
  };
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_EQ(get("/startupz").status, 200);
  EXPECT_EQ(get("/readyz").status, 503);
  view.ready = true;
  EXPECT_EQ(get("/readyz").status, 200);
  EXPECT_THAT(get("/metrics").body, HasSubstr("sluice_ready{"));
  EXPECT_THAT(get("/metrics").type, StartsWith("text/plain; version=0.0.4"));
  view.metrics_enabled = false;
  EXPECT_EQ(get("/metrics").status, 404);
  EXPECT_THAT(get("/").body, HasSubstr("Problems and bottlenecks"));
  EXPECT_THAT(get("/status.json").type, HasSubstr("application/json"));
  EXPECT_THAT(get("/status.json").body, HasSubstr("\"job\":\"de<m>o\""));
  EXPECT_EQ(get("/nothing").status, 404);
}

TEST(HealthPage, HasThreePathsAndNothingElse) {
  HttpView view = ExampleView();
  std::string trouble;
  const auto status = [&](const char* path) {
    return HealthPage(
               path, [&] { return view; }, [&] { return trouble; })
        .status;
  };
  EXPECT_EQ(status("/livez"), 200);
  EXPECT_EQ(status("/startupz"), 200);
  EXPECT_EQ(status("/readyz"), 503);
  view.ready = true;
  EXPECT_EQ(status("/readyz"), 200);
  for (const char* path :
       {"/", "/metrics", "/status.json", "/livez/", "//livez", "/readyz/..", "/nothing"}) {
    EXPECT_EQ(status(path), 404) << path;
  }
  trouble = std::string("the gRPC port is deaf");
  EXPECT_EQ(status("/livez"), 503);
  EXPECT_EQ(status("/readyz"), 200);
  EXPECT_EQ(HealthPage("/livez", nullptr, [&] { return trouble; }).body, "the gRPC port is deaf\n");
}

}  // namespace
}  // namespace sluice::server
