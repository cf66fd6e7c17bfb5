// SPDX-License-Identifier: Apache-2.0
#include "worker/http/worker_pages.h"

#include "absl/strings/str_cat.h"
#include "net/http/metric_families.h"

namespace sluice::worker {
namespace {

void AddTraining(const Progress& progress, net::MetricFamilies* out) {
  out->Gauge("sluice_train_step", "Last step that the worker has finished.",
             static_cast<double>(progress.step));
  out->Gauge("sluice_train_epoch", "Current epoch, from 0.", progress.epoch);
  out->Counter("sluice_samples_total", "Samples trained on since the job's start.",
               static_cast<double>(progress.samples));
  if (progress.step > 0) {
    out->Gauge("sluice_train_loss",
               "Mean loss since the last report, about a second ago; absent before the first step.",
               progress.loss);
  }
  if (progress.validation_metric >= 0) {
    out->Gauge("sluice_validation_metric", "Accuracy of the last test, as a share; on rank 0.",
               progress.validation_metric);
  }
}

void AddTimes(const SessionFigures& figures, net::MetricFamilies* out) {
  const StepSeconds& seconds = figures.seconds;
  out->Counter(
      "sluice_timed_steps_total",
      "Steps that sluice_step_exposed_seconds_total covers: all except the first of a session.",
      static_cast<double>(seconds.steps));
  out->StartCounter("sluice_step_exposed_seconds_total",
                    "Time of the training thread in steps by part: encode (waiting for the "
                    "worker's own encoder), exchange (waiting for its link, the shards and other "
                    "workers), decode, compute (all other time).");
  out->Add({{"part", "compute"}}, seconds.compute);
  out->Add({{"part", "encode"}}, seconds.encode);
  out->Add({{"part", "exchange"}}, seconds.exchange);
  out->Add({{"part", "decode"}}, seconds.decode);
  out->Counter("sluice_encode_wall_seconds_total",
               "Time of all encoding, including encoding hidden behind the backward pass.",
               seconds.encode_hidden_too);
  out->Histogram("sluice_exchange_duration_seconds",
                 "Time from a step's first frame to its last result.", figures.exchanges.counts,
                 DurationHistogram::kBounds, figures.exchanges.seconds);
  out->StartCounter("sluice_worker_stage_cpu_seconds_total",
                    "Processor time of exchanges by stage: encode, send, receive; without gRPC and "
                    "most of the kernel.");
  for (const protocol::Stage stage :
       {protocol::Stage::kEncode, protocol::Stage::kSend, protocol::Stage::kReceive}) {
    out->Add({{"stage", std::string(ToString(stage))}}, figures.stages[static_cast<size_t>(stage)]);
  }
}

void AddLink(const SessionFigures& figures, net::MetricFamilies* out) {
  const auto count = [&](const char* name, const char* help, uint64_t value) {
    out->Counter(name, help, static_cast<double>(value));
  };
  count("sluice_worker_uplink_bytes_total",
        "Bytes of messages to shards, without the overhead of gRPC and TCP.",
        figures.traffic.bytes_up);
  count("sluice_worker_uplink_uncompressed_bytes_total",
        "Size of the messages to shards in dense fp32.", figures.dense_bytes);
  count("sluice_worker_downlink_bytes_total", "Bytes of messages from shards.",
        figures.traffic.bytes_down);
  count("sluice_worker_downlink_uncompressed_bytes_total",
        "Size of the messages from shards in dense fp32.", figures.dense_bytes);
  out->Gauge("sluice_in_flight_bytes", "Bytes of frames sent and not yet admitted.",
             static_cast<double>(figures.bytes_in_flight));
  out->Gauge("sluice_fragments_in_flight",
             "Fragments, or without fragments models, whose exchange has begun and whose result "
             "the worker has not adopted.",
             figures.fragments_in_flight);
  count("sluice_skipped_bundles_total", "Bundles skipped because a gradient was not finite.",
        figures.skipped_bundles);
}

void AddQuality(const CodingQuality& quality, net::MetricFamilies* out) {
  out->Gauge("sluice_residual_gradient_norm_ratio",
             "Norm of the residual divided by the norm of the gradient; 0 without feedback.",
             quality.ResidualNormRatio());
  out->Gauge("sluice_captured_energy_ratio",
             "Share of the energy of gradient plus residual that the sent frames carry: 1 - |acc - "
             "sent|^2 / |acc|^2. 1 means no loss; negative for quantizers that send too much.",
             quality.CapturedEnergy());
  out->Gauge("sluice_sent_gradient_cosine",
             "Cosine between the decoded frames and the gradient; low if much of the sent data is "
             "from earlier steps.",
             quality.Cosine());
  out->Gauge("sluice_quality_chunks", "Chunks that were measured.",
             static_cast<double>(quality.chunks));
}

}  // namespace

std::string WorkerMetrics(const WorkerView& view) {
  net::MetricFamilies out({{"training_job", view.job_name}, {"rank", absl::StrCat(view.rank)}});
  out.StartGauge("sluice_build_info", "Always 1; the label version contains the version.");
  out.Add({{"version", view.software_version}}, 1);
  out.Counter("sluice_cpu_seconds_total", "Processor time of the process, all threads.",
              view.cpu_seconds);
  if (!view.figures.has_value()) return out.Text();
  AddTraining(view.figures->progress, &out);
  AddTimes(*view.figures, &out);
  AddLink(*view.figures, &out);
  if (view.figures->quality.has_value()) AddQuality(*view.figures->quality, &out);
  return out.Text();
}

net::HttpAnswer WorkerPage(const std::string& path, const std::function<WorkerView()>& view) {
  // A process that answers has started.
  if (path == "/startupz") return {.body = "started\n"};
  if (path == "/livez") return {.body = "alive\n"};
  if (path == "/readyz") {
    if (view().figures.has_value()) return {.body = "ready\n"};
    return {.status = 503, .body = "this worker has not joined the job\n"};
  }
  if (path == "/metrics") {
    const WorkerView seen = view();
    if (!seen.metrics_enabled) {
      return {.status = 404, .body = "the job has metrics.enabled: false\n"};
    }
    return {.type = net::kMetricsType, .body = WorkerMetrics(seen)};
  }
  return {.status = 404, .body = "there are /metrics, /livez, /readyz and /startupz\n"};
}

}  // namespace sluice::worker
