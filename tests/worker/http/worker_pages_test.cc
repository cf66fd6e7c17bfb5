// SPDX-License-Identifier: Apache-2.0
#include "worker/http/worker_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

WorkerView ExampleView() {
  WorkerView view{.job_name = "demo", .software_version = "0.1", .rank = 3, .cpu_seconds = 2.5};
  SessionFigures& figures = view.figures.emplace();
  figures.progress = {.step = 40, .epoch = 1, .samples = 640, .loss = 0.5};
  figures.traffic = {.bytes_up = 100, .bytes_down = 200};
  figures.fragments_in_flight = 1;
  figures.dense_bytes = 4000;
  figures.bytes_in_flight = 7;
  figures.seconds = {
      .steps = 39, .compute = 3, .encode = 0.25, .exchange = 1, .encode_hidden_too = 2};
  figures.stages[static_cast<size_t>(protocol::Stage::kEncode)] = 1.5;
  figures.exchanges.Add(absl::Milliseconds(20));
  return view;
}

const std::string kLabels = "{training_job=\"demo\",rank=\"3\"";

TEST(WorkerMetrics, TellsWhatAWorkerDoes) {
  const std::string text = WorkerMetrics(ExampleView());
  EXPECT_THAT(text, HasSubstr("sluice_build_info" + kLabels + ",version=\"0.1\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_cpu_seconds_total" + kLabels + "} 2.5"));
  EXPECT_THAT(text, HasSubstr("sluice_train_step" + kLabels + "} 40"));
  EXPECT_THAT(text, HasSubstr("sluice_samples_total" + kLabels + "} 640"));
  EXPECT_THAT(text, HasSubstr("sluice_train_loss" + kLabels + "} 0.5"));
  EXPECT_THAT(text,
              HasSubstr("sluice_step_exposed_seconds_total" + kLabels + ",part=\"exchange\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_encode_wall_seconds_total" + kLabels + "} 2"));
  EXPECT_THAT(text,
              HasSubstr("sluice_exchange_duration_seconds_bucket" + kLabels + ",le=\"0.01\"} 0"));
  EXPECT_THAT(text,
              HasSubstr("sluice_exchange_duration_seconds_bucket" + kLabels + ",le=\"0.03\"} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_stage_cpu_seconds_total" + kLabels +
                              ",stage=\"encode\"} 1.5"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_downlink_bytes_total" + kLabels + "} 200"));
  EXPECT_THAT(text,
              HasSubstr("sluice_worker_uplink_uncompressed_bytes_total" + kLabels + "} 4000"));
  EXPECT_THAT(text, HasSubstr("sluice_in_flight_bytes" + kLabels + "} 7"));
  EXPECT_THAT(text, HasSubstr("sluice_fragments_in_flight" + kLabels + "} 1"));
}

TEST(WorkerMetrics, WhatIsNotKnownIsNotThere) {
  WorkerView view = ExampleView();
  EXPECT_THAT(WorkerMetrics(view), Not(HasSubstr("sluice_validation_metric")));
  EXPECT_THAT(WorkerMetrics(view), Not(HasSubstr("sluice_captured_energy_ratio")));
  view.figures->progress.validation_metric = 0.75;
  view.figures->quality = CodingQuality{
      .gradient = 4, .wanted = 10, .lost = 1, .owed = 1, .sent = 9, .product = 6, .chunks = 2};
  const std::string text = WorkerMetrics(view);
  EXPECT_THAT(text, HasSubstr("sluice_validation_metric" + kLabels + "} 0.75"));
  EXPECT_THAT(text, HasSubstr("sluice_residual_gradient_norm_ratio" + kLabels + "} 0.5"));
  EXPECT_THAT(text, HasSubstr("sluice_captured_energy_ratio" + kLabels + "} 0.9"));
  EXPECT_THAT(text, HasSubstr("sluice_sent_gradient_cosine" + kLabels + "} 1"));
  EXPECT_THAT(text, HasSubstr("sluice_quality_chunks" + kLabels + "} 2"));
  view.figures.reset();
  EXPECT_THAT(WorkerMetrics(view), HasSubstr("sluice_build_info"));
  EXPECT_THAT(WorkerMetrics(view), Not(HasSubstr("sluice_train_step")));
}

TEST(WorkerPage, IsOfItsPaths) {
  WorkerView view = ExampleView();
  const auto get = [&](const char* path) { return WorkerPage(path, [&] { return view; }); };
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_EQ(get("/startupz").status, 200);
  EXPECT_EQ(get("/readyz").status, 200);
  EXPECT_THAT(get("/metrics").type, StartsWith("text/plain; version=0.0.4"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("sluice_train_step"));
  EXPECT_EQ(get("/").status, 404);
  view.figures.reset();
  EXPECT_EQ(get("/readyz").status, 503);
  view.metrics_enabled = false;
  EXPECT_EQ(get("/metrics").status, 404);
}

}  // namespace
}  // namespace sluice::worker
