// SPDX-License-Identifier: Apache-2.0
// `sluice simulate`: simulates a job on machines and links that the caller describes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planning/simulation/goodput.h"
#include "planning/simulation/outages.h"
#include "planning/simulation/simulation.h"

namespace sluice::cli {

struct SimulateCommand {
  std::string job_path;  // If empty, a job with the codecs of `sluice bench exchange`.
  std::vector<std::string> sets;
  bool dense = false;
  std::string model;  // If empty, the job's model or resnet50.
  std::string table_path;
  uint32_t workers = 0;  // 0: as in the job.
  uint32_t servers = 0;
  double compute_ms = 50;
  double overlap = 0;
  uint64_t steps = 30;
  uint64_t warmup = 3;
  uint64_t seed = 1;
  // Rates as ParseBitRate reads them, and times as absl::ParseDuration. Empty: no limit and no
  // time.
  std::string link_rate = "1gbit";
  std::string up_rate;  // The workers' sending rate.
  std::string burst;    // Bytes that an idle link of a machine passes at once.
  std::string latency;  // One way, between two machines of a rack.
  double loss = 0;
  bool colocated = false;
  uint32_t racks = 1;
  std::string rack_rate;
  std::string rack_latency;  // One way, between two racks, in addition to `latency`.
  double rack_loss = 0;
  std::vector<std::string> stragglers;  // RANK:FACTOR.
  double jitter = 0;
  // As planning::Cluster::share_sigma. The default fits the measurements of docs/performance.md.
  double unevenness = 0.35;
  std::string failures_path;
  std::string mtbf;  // Mean time between failures of one worker.
  std::string repair = "10m";
  double codec_scale = 1;
  double message_us = planning::MachineCosts().message_us;
  bool goodput = false;
  std::string duration = "24h";  // `goodput` simulates this time.
  std::string restart = "5m";
  std::string checkpoint_every = "30m";
  std::string report_path;
  std::string plot_folder;
};

// Simulates the job and writes a report. Returns the exit code: 0; 1 if the job or the simulation
// cannot go on or a file cannot be written; 2 if a flag or the job file is wrong.
int SimulateJob(const SimulateCommand& command, std::ostream& out, std::ostream& err);

// Converts the flags to a spec, without outages. Fails with INVALID_ARGUMENT or NOT_FOUND and names
// the flag.
absl::StatusOr<planning::SimulationSpec> SimulationSpecOf(const SimulateCommand& command);

}  // namespace sluice::cli
