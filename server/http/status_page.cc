#include "server/http/status_page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace sluice {
namespace {

constexpr absl::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Sluice</title><style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #ddd;
         font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
.failed { color: #b00020; font-weight: bold; }
</style></head><body>
)";

std::string HumanBytes(uint64_t bytes) {
  double value = static_cast<double>(bytes);
  for (const char* unit : {"B", "kB", "MB", "GB"}) {
    if (value < 1000) return absl::StrFormat("%.*f %s", value < 10 ? 1 : 0, value, unit);
    value /= 1000;
  }
  return absl::StrFormat("%.1f TB", value);
}

std::string Ratio(uint64_t dense, uint64_t sent) {
  if (sent == 0) return "-";
  return absl::StrFormat("%.1f\u00d7", static_cast<double>(dense) / static_cast<double>(sent));
}

void AddMembers(const JobStatus& job, std::string* out) {
  absl::StrAppend(out,
                  "<h2>Workers</h2><table><tr><th>rank</th><th>host</th><th>state</th><th>step</th>"
                  "<th>loss</th><th>samples/s</th><th>sent</th><th>ratio up</th><th>received</th>"
                  "<th>ratio down</th></tr>\n");
  for (const MemberStatus& member : job.members) {
    const MemberProgress& progress = member.progress;
    const std::string state =
        !member.joined ? "awaited"
        : member.lost  ? absl::StrFormat("lost, not heard of for %.0f s",
                                         absl::ToDoubleSeconds(member.since_heartbeat))
        : member.left
            ? "left"
            : absl::StrFormat("heard %.0f s ago", absl::ToDoubleSeconds(member.since_heartbeat));
    absl::StrAppend(out, "<tr><td>", member.rank, "</td><td>", EscapeHtml(member.host), "</td><td>",
                    state, "</td><td>", progress.step);
    if (progress.total_steps > 0) absl::StrAppend(out, " / ", progress.total_steps);
    absl::StrAppend(out, "</td><td>", absl::StrFormat("%.4f", progress.loss), "</td><td>",
                    absl::StrFormat("%.0f", progress.samples_per_second), "</td><td>",
                    HumanBytes(progress.bytes_up), "</td><td>",
                    Ratio(progress.dense_bytes_up, progress.bytes_up), "</td><td>",
                    HumanBytes(progress.bytes_down), "</td><td>",
                    Ratio(progress.dense_bytes_down, progress.bytes_down), "</td></tr>\n");
  }
  absl::StrAppend(out, "</table>\n");
}

absl::string_view RecoveryText(RecoveryClass recovery) {
  switch (recovery) {
    case RecoveryClass::kReplay:
      return "Recovery class replay: a process that is lost is brought back to where it was.";
    case RecoveryClass::kRollback:
      return "Recovery class rollback: the next loss takes the whole job back to the checkpoint.";
    case RecoveryClass::kNone:
      break;
  }
  return "Recovery class none: the next loss ends the job.";
}

void AddSurvival(const JobStatus& job, std::string* out) {
  absl::StrAppend(out, "<p>");
  if (job.checkpoint_step == 0) {
    absl::StrAppend(out, "No checkpoint yet");
  } else {
    absl::StrAppend(out, "Newest checkpoint: after step ", job.checkpoint_step);
    if (job.checkpoint_age.has_value()) {
      absl::StrAppend(out, ", ",
                      absl::FormatDuration(absl::Floor(*job.checkpoint_age, absl::Seconds(1))),
                      " ago");
    }
  }
  absl::StrAppend(out, "; term ", job.term, "; ", job.rollbacks,
                  job.rollbacks == 1 ? " rollback" : " rollbacks", ", ", job.repairs,
                  job.repairs == 1 ? " repair" : " repairs",
                  " since this coordinator started.</p>\n");
  absl::StrAppend(out, "<p>", RecoveryText(job.recovery_class));
  if (!job.recovery_reason.empty()) {
    absl::StrAppend(out, " Why: ", EscapeHtml(job.recovery_reason), ".");
  }
  absl::StrAppend(out, "</p>\n");
  if (!job.last_repair.empty()) {
    absl::StrAppend(out, "<p>Last repair: ", EscapeHtml(job.last_repair), ".</p>\n");
  }
  if (!job.last_rollback.empty()) {
    absl::StrAppend(out, "<p>Last rollback: ", EscapeHtml(job.last_rollback), ".</p>\n");
  }
}

void AddShards(const JobStatus& job, std::string* out) {
  absl::StrAppend(out,
                  "<h2>Shards</h2><table><tr><th>shard</th><th>address</th><th>state</th>"
                  "<th>parameters</th><th>step</th></tr>\n");
  for (const ShardStatus& shard : job.shards) {
    absl::StrAppend(
        out, "<tr><td>", shard.shard, "</td><td>", EscapeHtml(shard.address), "</td><td>",
        shard.lost       ? "lost"
        : shard.attached ? "attached"
                         : "awaited",
        "</td><td>", shard.elements, "</td><td>", shard.highest_closed_step, "</td></tr>\n");
  }
  absl::StrAppend(out, "</table>\n");
}

void AddThisShard(const HttpView& view, std::string* out) {
  const ShardStats& stats = view.stats;
  absl::StrAppend(
      out, "<h2>This server: shard ", view.shard, "</h2><table>\n",
      "<tr><th></th><th>frames</th><th>in dense fp32</th><th>ratio</th></tr>\n",
      "<tr><td>received</td><td>", HumanBytes(stats.bytes_in), "</td><td>",
      HumanBytes(stats.dense_bytes_in), "</td><td>", Ratio(stats.dense_bytes_in, stats.bytes_in),
      "</td></tr>\n", "<tr><td>sent</td><td>", HumanBytes(stats.bytes_out), "</td><td>",
      HumanBytes(stats.dense_bytes_out), "</td><td>", Ratio(stats.dense_bytes_out, stats.bytes_out),
      "</td></tr></table>\n<p>", stats.bundles_closed, " bundles closed, ",
      stats.skipped_contributions, " contributions skipped, ", stats.repeats, " repeated, ",
      stats.refused_invalid + stats.refused_fenced, " refused.</p>\n");
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string StatusPage(const HttpView& view) {
  std::string out(kHead);
  absl::StrAppend(&out, "<h1>", EscapeHtml(view.job_name), "</h1>\n");
  if (view.job.has_value()) {
    absl::StrAppend(&out, "<p>The job is <b>", ToString(view.job->phase), "</b>; step ",
                    view.stats.highest_closed_step, ", up for ",
                    absl::FormatDuration(absl::Floor(view.job->uptime, absl::Seconds(1))),
                    ".</p>\n");
    if (!view.job->failure.empty()) {
      absl::StrAppend(&out, "<p class=\"failed\">", EscapeHtml(view.job->failure), "</p>\n");
    }
    if (view.job->has_checkpoints) AddSurvival(*view.job, &out);
    AddMembers(*view.job, &out);
    AddShards(*view.job, &out);
  } else {
    absl::StrAppend(&out, "<p>Shard ", view.shard, " of ", view.shards, ", ",
                    view.ready ? "at work" : "waiting for the job to start",
                    "; the page of shard 0 shows the whole job.</p>\n");
  }
  AddThisShard(view, &out);
  absl::StrAppend(&out, "<p><a href=\"/metrics\">metrics</a> \u00b7 sluice ",
                  EscapeHtml(view.software_version), "</p></body></html>\n");
  return out;
}

}  // namespace sluice
