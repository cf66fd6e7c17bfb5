#include "server/http/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// Collects families whose samples all carry the job and the shard.
class Families {
 public:
  explicit Families(const HttpView& view)
      : common_{{"training_job", view.job_name}, {"shard", absl::StrCat(view.shard)}} {}

  void Start(const char* name, const char* help, prometheus::MetricType type) {
    families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
  }
  prometheus::ClientMetric& AddSample(Labels labels = {}) {
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = common_;
    metric.label.insert(metric.label.end(), labels.begin(), labels.end());
    return metric;
  }
  void Counter(const char* name, const char* help, uint64_t value) {
    Start(name, help, prometheus::MetricType::Counter);
    AddSample().counter.value = static_cast<double>(value);
  }
  void Gauge(const char* name, const char* help, double value) {
    Start(name, help, prometheus::MetricType::Gauge);
    AddSample().gauge.value = value;
  }
  void AddCounter(Labels labels, uint64_t value) {
    AddSample(std::move(labels)).counter.value = static_cast<double>(value);
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  const Labels common_;
  std::vector<prometheus::MetricFamily> families_;
};

void AddTraffic(const ShardStats& stats, Families* out) {
  out->Counter("sluice_uplink_bytes_total", "Bytes of frames admitted.", stats.bytes_in);
  out->Counter("sluice_uplink_uncompressed_bytes_total",
               "What those would have been in dense fp32.", stats.dense_bytes_in);
  out->Counter("sluice_downlink_bytes_total", "Bytes of results sent.", stats.bytes_out);
  out->Counter("sluice_downlink_uncompressed_bytes_total",
               "What those would have been in dense fp32.", stats.dense_bytes_out);
}

void AddSteps(const ShardStats& stats, Families* out) {
  out->Counter("sluice_contributions_total", "Contributions admitted, skips included.",
               stats.contributions);
  out->Counter("sluice_skipped_contributions_total",
               "Contributions that arrived but are in no mean: not finite, or out of data.",
               stats.skipped_contributions);
  out->Counter("sluice_repeats_total", "Contributions that were sent again.", stats.repeats);
  out->Counter("sluice_bundles_closed_total", "Bundles closed.", stats.bundles_closed);
  out->Start("sluice_empty_bundles_total", "Bundles that closed without a result, by cause.",
             prometheus::MetricType::Counter);
  out->AddCounter({{"reason", "skipped"}}, stats.empty_bundles - stats.overflowed_bundles);
  out->AddCounter({{"reason", "overflow"}}, stats.overflowed_bundles);
  out->Counter("sluice_quorum_bundles_total",
               "Bundles that closed without some worker (jobs with a quorum).",
               stats.quorum_bundles);
  out->Counter("sluice_late_contributions_total",
               "Contributions that came after their bundle had closed without them, and are in a "
               "later step (jobs with a quorum).",
               stats.late_contributions);
  out->Start("sluice_contributions_refused_total", "Requests that were not admitted, by answer.",
             prometheus::MetricType::Counter);
  out->AddCounter({{"reason", "invalid"}}, stats.refused_invalid);
  out->AddCounter({{"reason", "fenced"}}, stats.refused_fenced);
  out->AddCounter({{"reason", "busy"}}, stats.refused_busy);
  out->AddCounter({{"reason", "need"}}, stats.asked_for_payload);
  out->Gauge("sluice_step", "Highest step of which every bundle is closed.",
             static_cast<double>(stats.highest_closed_step));
}

template <size_t kBounds>
void FillHistogram(const std::array<uint64_t, kBounds + 1>& counts,
                   const std::array<double, kBounds>& bounds, double sum,
                   prometheus::ClientMetric::Histogram* histogram) {
  uint64_t count = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    count += counts[i];
    const double bound = i < kBounds ? bounds[i] : std::numeric_limits<double>::infinity();
    histogram->bucket.push_back({.cumulative_count = count, .upper_bound = bound});
  }
  histogram->sample_count = count;
  histogram->sample_sum = sum;
}

void AddWaiting(const ShardStats& stats, Families* out) {
  out->Start("sluice_aggregation_wait_seconds",
             "From a bundle's first contribution to its last, of bundles that closed; in async and "
             "ssp from a contribution to its result.",
             prometheus::MetricType::Histogram);
  FillHistogram(stats.wait_counts, kWaitBoundsSeconds, stats.wait_seconds,
                &out->AddSample().histogram);
}

// Of modes in which workers do not wait for each other.
void AddStaleness(const ShardStats& stats, Families* out) {
  out->Start("sluice_staleness_steps",
             "Updates of a bundle between the parameters that a contribution was made on and its "
             "own.",
             prometheus::MetricType::Histogram);
  FillHistogram(stats.staleness_counts, kStalenessBounds,
                static_cast<double>(stats.staleness_total), &out->AddSample().histogram);
  out->Counter("sluice_publications_total", "Times that a bundle's updates were published.",
               stats.publications);
  out->Counter("sluice_exact_results_total",
               "Results that brought parameters themselves: fewer bytes than what led there, or "
               "that is no longer kept.",
               stats.exact_results);
}

void AddStages(const StageSeconds& seconds, Families* out) {
  out->Start("sluice_stage_seconds_total",
             "Processor time of this server by stage of exchanges; gRPC and most of the kernel's "
             "is in none.",
             prometheus::MetricType::Counter);
  for (const Stage stage : kServerStages) {
    out->AddSample({{"stage", std::string(ToString(stage))}}).counter.value =
        seconds[static_cast<size_t>(stage)];
  }
}

void AddMembers(const JobStatus& job, Families* out) {
  out->Start("sluice_job_phase", "1 for the phase the job is in.", prometheus::MetricType::Gauge);
  std::vector<JobPhase> phases = {JobPhase::kWaiting, JobPhase::kRunning, JobPhase::kFinished,
                                  JobPhase::kFailed};
  if (job.has_checkpoints) phases.push_back(JobPhase::kRecovering);
  for (const JobPhase phase : phases) {
    out->AddSample({{"phase", std::string(ToString(phase))}}).gauge.value = phase == job.phase;
  }
  out->Start("sluice_worker_step", "Step that a worker is at.", prometheus::MetricType::Gauge);
  for (const MemberStatus& member : job.members) {
    out->AddSample({{"rank", absl::StrCat(member.rank)}}).gauge.value =
        static_cast<double>(member.progress.step);
  }
  out->Start("sluice_worker_loss", "Loss that a worker reported last.",
             prometheus::MetricType::Gauge);
  for (const MemberStatus& member : job.members) {
    out->AddSample({{"rank", absl::StrCat(member.rank)}}).gauge.value = member.progress.loss;
  }
}

void AddPlans(const JobCodecs& codecs, Families* out) {
  out->Counter("sluice_plans_total",
               "Compression plans made since this coordinator started, that of its start included.",
               codecs.plans_made);
  out->Gauge("sluice_plan_id", "The newest compression plan; 0: none, it is as the job file says.",
             codecs.plans.empty() ? 0 : static_cast<double>(codecs.plans.back().id));
}

void AddSurvival(const JobStatus& job, Families* out) {
  out->Gauge("sluice_checkpoint_step", "Step of the newest complete job checkpoint; 0: none.",
             static_cast<double>(job.checkpoint_step));
  if (job.checkpoint_age.has_value()) {
    out->Gauge("sluice_checkpoint_age_seconds", "Since the newest job checkpoint became complete.",
               absl::ToDoubleSeconds(*job.checkpoint_age));
  }
  out->Gauge("sluice_term", "Raised by each rollback.", job.term);
  out->Counter("sluice_rollbacks_total",
               "Times the job went back to a checkpoint since this coordinator started.",
               job.rollbacks);
  out->Counter("sluice_repairs_total",
               "Processes brought back without a rollback since this coordinator started.",
               job.repairs);
  out->Start("sluice_recovery_class",
             "1 for what the next loss would mean: replay (repaired in place) or rollback.",
             prometheus::MetricType::Gauge);
  for (const RecoveryClass recovery : {RecoveryClass::kReplay, RecoveryClass::kRollback}) {
    out->AddSample({{"class", std::string(ToString(recovery))}}).gauge.value =
        recovery == job.recovery_class;
  }
  const auto is_lost = [](const auto& who) { return who.lost; };
  out->Start("sluice_lost", "Processes whose lease is over and that the job waits for.",
             prometheus::MetricType::Gauge);
  out->AddSample({{"kind", "worker"}}).gauge.value =
      static_cast<double>(std::count_if(job.members.begin(), job.members.end(), is_lost));
  out->AddSample({{"kind", "shard"}}).gauge.value =
      static_cast<double>(std::count_if(job.shards.begin(), job.shards.end(), is_lost));
}

}  // namespace

std::string MetricsText(const HttpView& view) {
  Families out(view);
  out.Start("sluice_build_info", "1; the version is a label.", prometheus::MetricType::Gauge);
  out.AddSample({{"version", view.software_version}}).gauge.value = 1;
  out.Gauge("sluice_ready", "1 once the shard has its part of the job.", view.ready ? 1 : 0);
  out.Gauge("sluice_elements", "Parameters that live on this shard.",
            static_cast<double>(view.stats.elements));
  AddTraffic(view.stats, &out);
  AddSteps(view.stats, &out);
  AddWaiting(view.stats, &out);
  if (view.stats.publications > 0) AddStaleness(view.stats, &out);
  AddStages(view.stages, &out);
  out.Gauge("sluice_downlink_residual_energy",
            "Sum of squares of what the downlink still owes to the workers.", view.residual_energy);
  out.Gauge("sluice_held_bytes", "Frames admitted and not yet summed.",
            static_cast<double>(view.stats.held_bytes));
  out.Gauge("sluice_result_log_bytes",
            "Results kept for ranks that have not acknowledged them, and for repairs.",
            static_cast<double>(view.stats.log_bytes));
  out.Gauge("sluice_result_log_limit_bytes", "At which the oldest results are forgotten.",
            static_cast<double>(view.stats.log_limit));
  out.Gauge("sluice_results_from", "The step from which on all results are kept; 0: none are.",
            static_cast<double>(view.stats.results_from));
  if (view.job.has_value()) AddMembers(*view.job, &out);
  if (view.job.has_value()) AddPlans(view.job->codecs, &out);
  if (view.job.has_value() && view.job->has_checkpoints) AddSurvival(*view.job, &out);
  return out.Text();
}

}  // namespace sluice
