// SPDX-License-Identifier: Apache-2.0
// Small jobs for the simulation's tests.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "job/file/job_file.h"
#include "planning/simulation/simulation.h"

namespace sluice::planning {

// Tensors of `each` elements.
inline protocol::TensorTable TensorsOf(uint32_t tensors, int64_t each) {
  protocol::TensorTable table;
  for (uint32_t i = 0; i < tensors; ++i) {
    table.push_back({.name = absl::StrCat("t", i), .shape = {each}, .strides = {}});
  }
  return table;
}

// A job with codec `none`, links without limits, and processors that take no time. `keys` are lines
// of a job file.
inline SimulationSpec SpecOf(uint32_t workers, uint32_t shards, const std::string& keys = "",
                             const std::string& codecs = "uplink: none, downlink: none") {
  const std::string text = absl::StrCat("name: simulated\nworkers: ", workers, "\nshards: ", shards,
                                        "\nmodel: {name: mlp, hidden: [8]}\n"
                                        "data: {format: synthetic, limit: 64, test_limit: 8}\n"
                                        "batch_size_per_worker: 4\nsteps: 100\n"
                                        "optimizer: {name: sgd, lr: 0.1}\n"
                                        "compression: {",
                                        codecs, "}\n", keys);
  absl::StatusOr<job::JobSpec> job = job::LoadJobFromText(text, "job.yaml", {});
  if (!job.ok()) ADD_FAILURE() << job.status();
  SimulationSpec spec;
  if (job.ok()) spec.job = *std::move(job);
  spec.table = TensorsOf(1, 1 << 18);
  spec.costs = {.codec_scale = 0, .encode_ns = 0, .add_ns = 0, .message_us = 0, .byte_ns = 0};
  spec.compute_s = 0.1;
  spec.steps = 10;
  spec.warmup = 2;
  return spec;
}

inline SimulationReport MustSimulate(const SimulationSpec& spec) {
  absl::StatusOr<SimulationReport> report = Simulate(spec);
  if (!report.ok()) ADD_FAILURE() << report.status();
  return report.ok() ? *std::move(report) : SimulationReport();
}

}  // namespace sluice::planning
