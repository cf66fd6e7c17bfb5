// SPDX-License-Identifier: Apache-2.0
#include "server/http/metrics_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/http/metric_families.h"

namespace sluice::server {
namespace {

// Maximum number of workers with series on this port. Each worker exports all of its series on its
// own port.
constexpr size_t kRanksMax = 64;

void AddTraffic(const ShardStats& stats, net::MetricFamilies* out) {
  out->Counter("sluice_uplink_bytes_total",
               "Bytes of frames admitted, without the overhead of gRPC and TCP.", stats.bytes_in);
  out->Counter("sluice_uplink_uncompressed_bytes_total",
               "Size of the admitted frames in dense fp32.", stats.dense_bytes_in);
  out->Counter("sluice_downlink_bytes_total", "Bytes of results sent.", stats.bytes_out);
  out->Counter("sluice_downlink_uncompressed_bytes_total",
               "Size of the sent results in dense fp32.", stats.dense_bytes_out);
}

void AddSteps(const ShardStats& stats, net::MetricFamilies* out) {
  out->Counter("sluice_contributions_total", "Contributions admitted, skips included.",
               stats.contributions);
  out->Counter("sluice_skipped_contributions_total",
               "Contributions that are not part of any mean, because they were not finite or their "
               "worker had no more data.",
               stats.skipped_contributions);
  out->Counter("sluice_repeats_total", "Contributions that were resent.", stats.repeats);
  out->Counter("sluice_bundles_closed_total", "Bundles closed.", stats.bundles_closed);
  out->StartCounter("sluice_empty_bundles_total",
                    "Bundles closed without a result, by reason: skipped (all workers skipped), "
                    "overflow (the sum overflowed).");
  out->Add({{"reason", "skipped"}}, stats.empty_bundles - stats.overflowed_bundles);
  out->Add({{"reason", "overflow"}}, stats.overflowed_bundles);
  out->Counter("sluice_quorum_bundles_total",
               "Bundles closed without the contributions of all workers (jobs with a quorum).",
               stats.quorum_bundles);
  out->Counter("sluice_late_contributions_total",
               "Contributions that arrived after their bundle had closed and were added to a later "
               "step (jobs with a quorum).",
               stats.late_contributions);
  out->Counter("sluice_late_exchanges_total",
               "Sum of the ages of late contributions when a result includes them, in exchanges of "
               "their bundle.",
               stats.late_exchanges);
  out->StartCounter(
      "sluice_contributions_refused_total",
      "Requests not admitted, by reason: invalid (does not fit the job), fenced (from a replaced "
      "worker), busy (no memory now; the worker retries), need (a repair needs the payload).");
  out->Add({{"reason", "invalid"}}, stats.refused_invalid);
  out->Add({{"reason", "fenced"}}, stats.refused_fenced);
  out->Add({{"reason", "busy"}}, stats.refused_busy);
  out->Add({{"reason", "need"}}, stats.asked_for_payload);
  out->Gauge("sluice_step", "Highest step in which every bundle is closed.",
             static_cast<double>(stats.highest_closed_step));
}

void AddWaiting(const ShardStats& stats, net::MetricFamilies* out) {
  out->Histogram(
      "sluice_aggregation_wait_seconds",
      "Time from a bundle's first contribution to its last; in asynchronous modes, from a "
      "contribution to its result.",
      stats.wait_counts, kWaitBoundsSeconds, stats.wait_seconds);
}

// Adds the known links of the first kRanksMax ranks.
void AddLinks(const LinkStats& links, net::MetricFamilies* out) {
  const size_t ranks = std::min(links.ranks.size(), kRanksMax);
  const auto each_way = [&](double protocol::LinkFigures::*rate,
                            double protocol::LinkFigures::*value, const char* way) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (links.ranks[rank].*rate <= 0) continue;
      out->Add({{"rank", absl::StrCat(rank)}, {"direction", way}}, links.ranks[rank].*value);
    }
  };
  out->StartGauge("sluice_link_rate_bytes_per_second",
                  "Throughput of a worker's busy link, without latency, by rank and direction (up, "
                  "down), once known.");
  each_way(&protocol::LinkFigures::up_rate, &protocol::LinkFigures::up_rate, "up");
  each_way(&protocol::LinkFigures::down_rate, &protocol::LinkFigures::down_rate, "down");
  out->StartGauge("sluice_link_latency_seconds",
                  "One-way latency by rank and direction: half of the shortest round trip of a "
                  "small message on an idle link.");
  each_way(&protocol::LinkFigures::up_rate, &protocol::LinkFigures::up_latency_s, "up");
  each_way(&protocol::LinkFigures::down_rate, &protocol::LinkFigures::down_latency_s, "down");
  out->Histogram("sluice_queue_delay_seconds",
                 "Time from a request's arrival until the shard begins to check and sum it.",
                 links.queue_counts, kQueueBoundsSeconds, links.queue_seconds);
  out->StartCounter("sluice_worker_late_seconds_total",
                    "Time from the first worker's last frame of a step to this worker's, by rank "
                    "and cause: compute (longer computation), network (the rest: link or encoder); "
                    "over steps that all workers reported.");
  for (size_t rank = 0; rank < ranks; ++rank) {
    const protocol::LinkFigures& link = links.ranks[rank];
    out->Add({{"rank", absl::StrCat(rank)}, {"cause", "compute"}}, link.compute_late_s);
    out->Add({{"rank", absl::StrCat(rank)}, {"cause", "network"}}, link.network_late_s);
  }
}

// Adds the series of jobs with a guard for the first kRanksMax ranks.
void AddAgreement(const std::vector<RankAgreement>& all, net::MetricFamilies* out) {
  const size_t ranks = std::min(all.size(), kRanksMax);
  const auto label = [](size_t rank) { return absl::StrCat(rank); };
  out->StartGauge("sluice_contribution_norm_ratio",
                  "Norm of a rank's newest contribution that the shard compared, divided by the "
                  "median norm (jobs with a guard).");
  for (size_t rank = 0; rank < ranks; ++rank) {
    out->Add({{"rank", label(rank)}}, all[rank].norm_ratio);
  }
  out->StartGauge("sluice_contribution_cosine",
                  "Mean cosine between a rank's contributions and the sum of the others', over "
                  "the last 12 steps (jobs with a guard).");
  for (size_t rank = 0; rank < ranks; ++rank) {
    out->Add({{"rank", label(rank)}}, all[rank].cosine);
  }
  out->StartCounter("sluice_guarded_contributions_total",
                    "Contributions to bundles that the guard found or changed, by rank and kind: "
                    "outlier (norm above the limit), clipped, left_out.");
  for (size_t rank = 0; rank < ranks; ++rank) {
    out->Add({{"rank", label(rank)}, {"kind", "outlier"}}, static_cast<double>(all[rank].outliers));
    out->Add({{"rank", label(rank)}, {"kind", "clipped"}}, static_cast<double>(all[rank].clipped));
    out->Add({{"rank", label(rank)}, {"kind", "left_out"}},
             static_cast<double>(all[rank].left_out));
  }
}

// Adds the series of jobs that merge contributions, for the first kRanksMax ranks.
void AddShares(const std::vector<double>& shares, net::MetricFamilies* out) {
  out->StartGauge(
      "sluice_merge_share",
      "Share of a rank's contribution in the newest result, 0 to 1: its weight, less if "
      "it was late or clipped (jobs with merge_weights, merge_over, merge_method or "
      "late_decay).");
  for (size_t rank = 0; rank < std::min(shares.size(), kRanksMax); ++rank) {
    out->Add({{"rank", absl::StrCat(rank)}}, shares[rank]);
  }
}

// Adds the series for modes in which workers do not wait for each other.
void AddStaleness(const ShardStats& stats, net::MetricFamilies* out) {
  out->Histogram("sluice_staleness_steps",
                 "Updates of a bundle between the version on which a contribution was computed and "
                 "the contribution's own update.",
                 stats.staleness_counts, kStalenessBounds,
                 static_cast<double>(stats.staleness_total));
  out->Counter("sluice_publications_total", "Publications of a bundle's updates.",
               stats.publications);
  out->Counter("sluice_exact_results_total",
               "Results that contain the parameters, because these take fewer bytes than the "
               "updates or the updates were evicted.",
               stats.exact_results);
}

void AddOuterGain(double correlation, double gain, net::MetricFamilies* out) {
  out->Gauge("sluice_outer_correlation",
             "Cosine between successive mean changes of the same parameters, over about ten "
             "exchanges, from a sample: 1 means the same direction, 0 noise.",
             correlation);
  out->Gauge("sluice_outer_gain",
             "Estimate of how far outer_optimizer moves the parameters in the long run for each "
             "unit of mean change: outer_lr * (1 + outer_momentum / (1 - outer_momentum * "
             "sluice_outer_correlation)).",
             gain);
}

void AddStages(const protocol::StageSeconds& seconds, net::MetricFamilies* out) {
  out->StartCounter("sluice_stage_cpu_seconds_total",
                    "Processor time of exchanges by stage: receive, sum, encode, send; without "
                    "gRPC and most of the kernel.");
  for (const protocol::Stage stage : protocol::kServerStages) {
    out->Add({{"stage", std::string(ToString(stage))}}, seconds[static_cast<size_t>(stage)]);
  }
}

void AddMembers(const JobStatus& job, net::MetricFamilies* out) {
  out->StartGauge("sluice_job_phase",
                  "1 for the current phase: waiting, running, recovering (jobs with checkpoints), "
                  "finished, failed.");
  std::vector<protocol::JobPhase> phases = {
      protocol::JobPhase::kWaiting, protocol::JobPhase::kRunning, protocol::JobPhase::kFinished,
      protocol::JobPhase::kFailed};
  if (job.has_checkpoints) phases.push_back(protocol::JobPhase::kRecovering);
  for (const protocol::JobPhase phase : phases) {
    out->Add({{"phase", std::string(ToString(phase))}}, phase == job.phase);
  }
  out->StartGauge("sluice_members", "Workers by state: awaited, here, left, lost.");
  const auto count = [&](const char* state, auto is) {
    out->Add({{"state", state}},
             static_cast<double>(std::count_if(job.members.begin(), job.members.end(), is)));
  };
  using Member = MemberStatus;
  count("awaited", [](const Member& member) { return !member.joined; });
  count("here", [](const Member& member) { return member.joined && !member.left && !member.lost; });
  count("left", [](const Member& member) { return member.joined && member.left; });
  count("lost", [](const Member& member) { return member.joined && !member.left && member.lost; });
  out->Gauge("sluice_generation", "Version of the membership.", job.generation);
  out->Counter("sluice_lost_workers_total",
               "Workers that the job continued without (elastic jobs).",
               static_cast<double>(job.lost_workers));
  out->Counter("sluice_lost_residual_energy_total",
               "Sum of squares of the lost workers' residuals, from each worker's last "
               "measurement. Workers without --http-listen measure nothing and do not count.",
               job.lost_residual_energy);
}

void AddPlans(const JobCodecs& codecs, net::MetricFamilies* out) {
  out->Counter("sluice_plans_total", "Compression plans made, including the first one.",
               codecs.plans_made);
  out->Gauge("sluice_plan_id", "Newest compression plan; 0 if compression follows the job file.",
             codecs.plans.empty() ? 0 : static_cast<double>(codecs.plans.back().id));
  if (codecs.plans.empty() || !codecs.plans.back().bytes.has_value()) return;
  const PlanBytes& bytes = *codecs.plans.back().bytes;
  out->StartGauge("sluice_plan_uplink_bytes",
                  "Estimated bytes of a worker's frames per step under the newest plan, by rank; "
                  "only if the size of every codec is known.");
  for (size_t rank = 0; rank < std::min(bytes.up.size(), kRanksMax); ++rank) {
    out->Add({{"rank", absl::StrCat(rank)}}, bytes.up[rank]);
  }
  out->Gauge("sluice_plan_downlink_bytes", "Estimated bytes of one step's results for each worker.",
             bytes.down);
}

// Adds the series of the first kRanksMax ranks.
void AddRanks(const JobStatus& job, net::MetricFamilies* out) {
  const auto each = [&](auto value_of) {
    for (size_t i = 0; i < std::min(job.members.size(), kRanksMax); ++i) {
      const MemberStatus& member = job.members[i];
      out->Add({{"rank", absl::StrCat(member.rank)}}, static_cast<double>(value_of(member)));
    }
  };
  out->StartGauge("sluice_worker_step", "Current step of a worker, by rank.");
  each([](const MemberStatus& member) { return member.progress.step; });
  out->StartGauge("sluice_worker_loss", "Loss that a worker reported last, by rank.");
  each([](const MemberStatus& member) { return member.progress.loss; });
  out->StartCounter("sluice_worker_waited_seconds_total",
                    "Time that a worker's contributions to a step waited at the shards, once "
                    "complete, for other workers or the sum, by rank; mean over the shards.");
  each([](const MemberStatus& member) { return member.waited_seconds; });
}

void AddSurvival(const JobStatus& job, net::MetricFamilies* out) {
  out->Gauge("sluice_checkpoint_step",
             "Step of the newest complete checkpoint; 0 if there is none.",
             static_cast<double>(job.checkpoint_step));
  if (job.checkpoint_age.has_value()) {
    out->Gauge("sluice_checkpoint_age_seconds", "Time since the newest checkpoint became complete.",
               absl::ToDoubleSeconds(*job.checkpoint_age));
  }
  out->Gauge("sluice_checkpoint_last_attempt_failed",
             "1 from a failed checkpoint until the next complete one.",
             job.checkpoint_trouble.empty() ? 0 : 1);
  out->Gauge("sluice_run_record_unwritten",
             "1 while run.json cannot be written; meanwhile, no process joins or is removed.",
             job.record_unwritten ? 1 : 0);
  out->Gauge("sluice_term", "Current term; it rises with each rollback.", job.term);
  out->Counter("sluice_rollbacks_total", "Rollbacks to a checkpoint.", job.rollbacks);
  out->Counter("sluice_repairs_total", "Processes repaired without a rollback.", job.repairs);
  out->StartGauge(
      "sluice_recovery_class",
      "1 for the current recovery class: replay (a loss is repaired in place) or rollback.");
  for (const RecoveryClass recovery : {RecoveryClass::kReplay, RecoveryClass::kRollback}) {
    out->Add({{"class", std::string(ToString(recovery))}}, recovery == job.recovery_class);
  }
  const auto count_lost = [](const auto& all) {
    return static_cast<double>(
        std::count_if(all.begin(), all.end(), [](const auto& who) { return who.lost; }));
  };
  out->StartGauge(
      "sluice_missing_processes",
      "Processes whose lease has expired and that the job waits for, by kind: worker, shard.");
  out->Add({{"kind", "worker"}}, count_lost(job.members));
  out->Add({{"kind", "shard"}}, count_lost(job.shards));
}

// Adds the series of jobs with followers.
void AddFollowers(const follow::FollowerFigures& figures, net::MetricFamilies* out) {
  out->Gauge("sluice_followers", "Followers connected to this server or relay.",
             static_cast<double>(figures.followers));
  out->Gauge("sluice_follower_version", "Step of the newest version that followers can read.",
             static_cast<double>(figures.newest_step));
  out->Gauge("sluice_follower_lag_steps",
             "Steps from the version of the follower that lags most to the newest version.",
             static_cast<double>(figures.lag_steps));
  out->Counter("sluice_follower_versions_total", "Versions that followers could read.",
               figures.versions);
  out->Counter("sluice_follower_skipped_versions_total",
               "Versions left out because encoding takes longer than the time between two.",
               figures.skipped);
  out->Counter("sluice_follower_anchors_total", "Complete copies made for followers.",
               figures.anchors);
  out->Counter("sluice_follower_bytes_total",
               "Bytes of patches and anchors that followers received.", figures.sent_bytes);
}

// Adds the series for this shard's parts of job checkpoints.
void AddSnapshots(const SnapshotStats& stats, net::MetricFamilies* out) {
  out->StartCounter("sluice_snapshots_total",
                    "This shard's parts of checkpoints by result: written, failed.");
  out->Add({{"result", "written"}}, static_cast<double>(stats.written));
  out->Add({{"result", "failed"}}, static_cast<double>(stats.failed));
  if (stats.written == 0) return;
  out->Gauge("sluice_snapshot_bytes", "Size of this shard's last part of a checkpoint.",
             static_cast<double>(stats.last_bytes));
  out->Gauge("sluice_snapshot_duration_seconds",
             "Time to write this shard's last part of a checkpoint, concurrently with training.",
             stats.last_seconds);
}

}  // namespace

std::string MetricsText(const HttpView& view) {
  net::MetricFamilies out({{"training_job", view.job_name}, {"shard", absl::StrCat(view.shard)}});
  out.StartGauge("sluice_build_info", "Always 1; the label version contains the version.");
  out.Add({{"version", view.software_version}}, 1);
  out.Counter("sluice_cpu_seconds_total", "Processor time of the process, all threads.",
              view.cpu_seconds);
  out.Gauge("sluice_ready", "1 once the shard has its part of the job.", view.ready ? 1 : 0);
  out.Gauge("sluice_elements", "Parameters on this shard.",
            static_cast<double>(view.stats.elements));
  AddTraffic(view.stats, &out);
  AddSteps(view.stats, &out);
  AddWaiting(view.stats, &out);
  if (view.stats.publications > 0) AddStaleness(view.stats, &out);
  if (!view.stats.agreement.empty()) AddAgreement(view.stats.agreement, &out);
  if (!view.stats.merge_shares.empty()) AddShares(view.stats.merge_shares, &out);
  if (view.stats.outer_correlation.has_value() && view.stats.outer_gain.has_value()) {
    AddOuterGain(*view.stats.outer_correlation, *view.stats.outer_gain, &out);
  }
  AddStages(view.stages, &out);
  AddLinks(view.links, &out);
  out.Gauge("sluice_downlink_residual_energy", "Sum of squares of the downlink's residual.",
            view.residual_energy);
  out.Gauge("sluice_pending_bytes", "Bytes of frames that are admitted and not yet summed.",
            static_cast<double>(view.stats.held_bytes));
  out.Gauge("sluice_result_log_bytes",
            "Bytes of results kept for workers that have not acknowledged them, and for repairs.",
            static_cast<double>(view.stats.log_bytes));
  out.Gauge("sluice_result_log_limit_bytes", "Size at which the shard evicts the oldest results.",
            static_cast<double>(view.stats.log_limit));
  out.Gauge("sluice_replay_first_step",
            "First step from which the shard keeps all results; 0 if it keeps none.",
            static_cast<double>(view.stats.results_from));
  if (view.followers.has_value()) AddFollowers(*view.followers, &out);
  if (view.snapshots.has_value()) AddSnapshots(*view.snapshots, &out);
  if (view.job.has_value()) AddMembers(*view.job, &out);
  if (view.job.has_value()) AddPlans(view.job->codecs, &out);
  if (view.job.has_value()) AddRanks(*view.job, &out);
  if (view.job.has_value() && view.job->has_checkpoints) AddSurvival(*view.job, &out);
  return out.Text();
}

}  // namespace sluice::server
