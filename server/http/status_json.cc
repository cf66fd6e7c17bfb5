// SPDX-License-Identifier: Apache-2.0
#include "server/http/status_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kWorkersMax = 64;

std::string Text(absl::string_view text) { return std::string(text); }

// Rounds to five significant digits. That is enough for drawing and halves the size of the answer.
Json Number(double value) {
  double rounded = 0;
  if (!std::isfinite(value) || !absl::SimpleAtod(absl::StrFormat("%.5g", value), &rounded)) {
    return nullptr;
  }
  return rounded;
}

Json Number(const std::optional<double>& value) {
  return value.has_value() ? Number(*value) : Json(nullptr);
}

Json Ratio(uint64_t dense, uint64_t sent) {
  if (sent == 0) return nullptr;
  return Number(static_cast<double>(dense) / static_cast<double>(sent));
}

Json SplitJson(const StepSplit& split) {
  return {{"compute", Number(split.compute)},
          {"encode", Number(split.encode)},
          {"wait", Number(split.wait)},
          {"transfer", Number(split.transfer)}};
}

const char* StateOf(const MemberStatus& member) {
  if (!member.joined) return "awaited";
  if (member.lost) return "lost";
  return member.left ? "left" : "here";
}

const char* StateOf(const ShardStatus& shard) {
  if (shard.lost) return "lost";
  return shard.attached ? "attached" : "awaited";
}

Json WorkerJson(const MemberStatus& member, const std::optional<MemberPace>& pace) {
  const protocol::MemberProgress& progress = member.progress;
  Json worker = {{"rank", member.rank},
                 {"host", member.host},
                 {"state", StateOf(member)},
                 {"heartbeat_age_seconds", Number(absl::ToDoubleSeconds(member.since_heartbeat))},
                 {"step", progress.step},
                 {"epoch", progress.epoch},
                 {"loss", Number(progress.loss)},
                 {"validation_metric", nullptr},
                 {"samples_per_second", Number(progress.samples_per_second)},
                 {"uplink_bytes", progress.bytes_up},
                 {"downlink_bytes", progress.bytes_down},
                 {"uplink_ratio", Ratio(progress.dense_bytes_up, progress.bytes_up)},
                 {"downlink_ratio", Ratio(progress.dense_bytes_down, progress.bytes_down)},
                 {"suspect", nullptr},
                 {"step_seconds", nullptr},
                 {"uplink_bytes_per_step", nullptr},
                 {"downlink_bytes_per_step", nullptr}};
  const protocol::LinkFigures& link = member.link;
  worker["uplink_rate"] = link.up_rate > 0 ? Number(link.up_rate) : Json(nullptr);
  worker["downlink_rate"] = link.down_rate > 0 ? Number(link.down_rate) : Json(nullptr);
  worker["uplink_latency_seconds"] = link.up_rate > 0 ? Number(link.up_latency_s) : Json(nullptr);
  worker["downlink_latency_seconds"] =
      link.down_rate > 0 ? Number(link.down_latency_s) : Json(nullptr);
  if (member.suspect.has_value()) {
    worker["suspect"] = member.suspect->opposes ? "opposes" : "outlier";
  }
  if (progress.validation_metric >= 0) {
    worker["validation_metric"] = Number(progress.validation_metric);
  }
  if (pace.has_value()) {
    worker["step_seconds"] = SplitJson(pace->split);
    worker["uplink_bytes_per_step"] = Number(pace->bytes_up_per_step);
    worker["downlink_bytes_per_step"] = Number(pace->bytes_down_per_step);
  }
  return worker;
}

Json CheckpointJson(const JobStatus& job) {
  Json checkpoint = {{"step", job.checkpoint_step},
                     {"age_seconds", nullptr},
                     {"term", job.term},
                     {"rollbacks", job.rollbacks},
                     {"repairs", job.repairs},
                     {"recovery_class", Text(ToString(job.recovery_class))},
                     {"recovery_reason", job.recovery_reason},
                     {"last_repair", job.last_repair},
                     {"last_rollback", job.last_rollback}};
  if (job.checkpoint_age.has_value()) {
    checkpoint["age_seconds"] = Number(absl::ToDoubleSeconds(*job.checkpoint_age));
  }
  return checkpoint;
}

// Lists the newest plan first. Either that plan or the one before it is in effect.
Json CodecsJson(const JobCodecs& codecs, uint64_t step) {
  const PlanChange* in_force = PlanIn(codecs.plans, step);
  Json out = {{"uplink", codecs.uplink},
              {"downlink", codecs.downlink},
              {"policy", codecs.policy},
              {"momentum", codecs.momentum},
              {"plan", in_force == nullptr ? Json(nullptr) : Json(in_force->id)},
              {"plans_made", codecs.plans_made}};
  Json plans = Json::array();
  for (auto plan = codecs.plans.rbegin(); plan != codecs.plans.rend(); ++plan) {
    plans.push_back({{"id", plan->id},
                     {"effective_step", plan->effective_step},
                     {"what", plan->what},
                     {"reason", plan->reason}});
  }
  out["plans"] = std::move(plans);
  return out;
}

Json ColumnOf(const std::vector<HistoryPoint>& history, Json (*value)(const HistoryPoint&)) {
  Json column = Json::array();
  for (const HistoryPoint& point : history) column.push_back(value(point));
  return column;
}

Json SplitColumn(const std::vector<HistoryPoint>& history, double StepSplit::*part) {
  Json column = Json::array();
  for (const HistoryPoint& point : history) {
    column.push_back(point.split.has_value() ? Number((*point.split).*part) : Json(nullptr));
  }
  return column;
}

// Groups values by column, so that points do not repeat the names.
Json HistoryJson(const std::vector<HistoryPoint>& history) {
  using Point = HistoryPoint;
  return {
      {"seconds", ColumnOf(history, [](const Point& p) { return Number(p.seconds); })},
      {"step", ColumnOf(history, [](const Point& p) { return Json(p.step); })},
      {"loss", ColumnOf(history, [](const Point& p) { return Number(p.loss); })},
      {"loss_min", ColumnOf(history, [](const Point& p) { return Number(p.loss_min); })},
      {"loss_max", ColumnOf(history, [](const Point& p) { return Number(p.loss_max); })},
      {"validation_metric",
       ColumnOf(history, [](const Point& p) { return Number(p.validation_metric); })},
      {"step_compute_seconds", SplitColumn(history, &StepSplit::compute)},
      {"step_encode_seconds", SplitColumn(history, &StepSplit::encode)},
      {"step_wait_seconds", SplitColumn(history, &StepSplit::wait)},
      {"step_transfer_seconds", SplitColumn(history, &StepSplit::transfer)},
      {"uplink_bytes_per_second",
       ColumnOf(history, [](const Point& p) { return Number(p.bytes_up_per_second); })},
      {"downlink_bytes_per_second",
       ColumnOf(history, [](const Point& p) { return Number(p.bytes_down_per_second); })},
      {"uplink_ratio", ColumnOf(history, [](const Point& p) { return Number(p.ratio_up); })},
      {"downlink_ratio", ColumnOf(history, [](const Point& p) { return Number(p.ratio_down); })}};
}

Json ThisShardJson(const ShardStats& stats) {
  return {{"step", stats.highest_closed_step},
          {"elements", stats.elements},
          {"uplink_bytes", stats.bytes_in},
          {"uplink_uncompressed_bytes", stats.dense_bytes_in},
          {"downlink_bytes", stats.bytes_out},
          {"downlink_uncompressed_bytes", stats.dense_bytes_out},
          {"bundles_closed", stats.bundles_closed},
          {"skipped_contributions", stats.skipped_contributions},
          {"repeats", stats.repeats},
          {"contributions_refused", stats.refused_invalid + stats.refused_fenced},
          {"outer_correlation", Number(stats.outer_correlation)},
          {"outer_gain", Number(stats.outer_gain)}};
}

Json FollowersJson(const follow::FollowerFigures& figures) {
  return {{"connected", figures.followers}, {"newest_step", figures.newest_step},
          {"lag_steps", figures.lag_steps}, {"versions", figures.versions},
          {"skipped", figures.skipped},     {"anchors", figures.anchors},
          {"bytes", figures.sent_bytes}};
}

// Returns the remaining time of the slowest worker.
std::optional<double> SecondsLeft(const JobStatus& job) {
  std::optional<double> left;
  for (const MemberStatus& member : job.members) {
    const std::optional<double>& its = member.progress.seconds_left;
    if (its.has_value()) left = std::max(left.value_or(0), *its);
  }
  return left;
}

void AddJob(const JobStatus& job, const JobReport& report, Json* out) {
  uint64_t step = 0;
  uint64_t total_steps = 0;
  for (const MemberStatus& member : job.members) {
    step = std::max(step, member.progress.step);
    total_steps = std::max(total_steps, member.progress.total_steps);
  }
  (*out)["phase"] = Text(ToString(job.phase));
  (*out)["failure"] = job.failure;
  (*out)["uptime_seconds"] = Number(absl::ToDoubleSeconds(job.uptime));
  (*out)["step"] = step;
  (*out)["total_steps"] = total_steps;
  (*out)["seconds_left"] = Number(SecondsLeft(job));
  Json warnings = Json::array();
  for (const JobWarning& warning : report.warnings) {
    warnings.push_back({{"kind", Text(ToString(warning.kind))},
                        {"text", warning.text},
                        {"action", warning.action},
                        {"runbook", Text(NameOf(warning.runbook))}});
  }
  (*out)["warnings"] = std::move(warnings);
  (*out)["workers_total"] = job.members.size();
  Json workers = Json::array();
  for (size_t i = 0; i < std::min(job.members.size(), kWorkersMax); ++i) {
    workers.push_back(
        WorkerJson(job.members[i], i < report.paces.size() ? report.paces[i] : std::nullopt));
  }
  (*out)["workers"] = std::move(workers);
  Json servers = Json::array();
  for (const ShardStatus& shard : job.shards) {
    servers.push_back({{"shard", shard.shard},
                       {"address", shard.address},
                       {"state", StateOf(shard)},
                       {"elements", shard.elements},
                       {"step", shard.highest_closed_step}});
  }
  (*out)["servers"] = std::move(servers);
  (*out)["compression"] = CodecsJson(job.codecs, step + 1);
  (*out)["checkpoint"] = job.has_checkpoints ? CheckpointJson(job) : Json(nullptr);
  (*out)["history"] = HistoryJson(report.history);
}

}  // namespace

std::string StatusJson(const HttpView& view) {
  Json out = {{"job", view.job_name}, {"version", view.software_version},
              {"shard", view.shard},  {"shards", view.shards},
              {"ready", view.ready},  {"this_shard", ThisShardJson(view.stats)}};
  if (view.followers.has_value()) out["followers"] = FollowersJson(*view.followers);
  if (view.job.has_value()) AddJob(*view.job, view.report.value_or(JobReport()), &out);
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::server
