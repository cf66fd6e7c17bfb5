// SPDX-License-Identifier: Apache-2.0
// `sluice estimate`: predicts the time, bytes and cost of a job's steps, and recommends settings.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planning/estimate/recommendation.h"

namespace sluice::cli {

// What the flags say. An empty string or no value means that the flag is absent.
struct EstimateCommand {
  std::string job_path;
  std::vector<std::string> sets;
  std::string model;
  std::string table_path;
  std::optional<double> parameters;
  std::optional<uint32_t> workers;
  std::optional<uint32_t> shards;
  std::optional<uint32_t> sites;
  uint32_t threads = 1;
  bool relays = false;
  std::string placement;
  std::string link_rate = "1gbit";
  std::string up_rate;
  std::string site_rate = "10gbit";
  std::string latency = "0s";
  std::string burst;
  double compute_ms = 0;
  std::optional<double> overlap;
  std::string spec;
  std::string down_spec;
  bool local_steps = true;  // Recommend them if they are much faster.
  std::string figures_path;
  std::optional<double> egress_price;  // Per GB (10^9 bytes).
  bool json = false;
};

// One column of the report.
struct NamedEstimate {
  std::string name;  // "this job", "dense fp32", ...
  planning::Choice choice;
};

struct EstimateReport {
  std::vector<NamedEstimate> columns;  // The last one is the recommendation.
  planning::Recommendation recommendation;
  std::optional<double> egress_price;
};

// Reads the job file, the table and the figures, and estimates. Fails with INVALID_ARGUMENT or
// NOT_FOUND; the message names the flag or the key and what to do.
absl::StatusOr<EstimateReport> MakeEstimateReport(const EstimateCommand& command,
                                                  const planning::MachineFigures& machine);

std::string FormatEstimateReport(const EstimateReport& report);

// {schema: 1, estimates: [{name, workers, shards, sites, relays, placement, codec_up, codec_down,
// local_steps, fragments, delay, step_ms, exchange_ms, exposed_ms, compute_ms, efficiency (null
// without compute time), busiest, bytes_up, bytes_down (of one sender and exchange),
// exchanges_per_step, egress_bytes_per_step, egress_cost_per_step (null without a price),
// shard_memory_bytes, shard_memory_checkpoint_bytes, shard_cores, shard_cpu_ms, worker_cpu_ms}],
// recommended (index), reasons: [{what, choice, why}], considered}. Later versions keep these keys
// and may add others.
std::string EstimateReportJson(const EstimateReport& report);

// Reads the file of --figures, or returns the usual figures if `path` is empty.
absl::StatusOr<planning::MachineFigures> ReadMachineFigures(const std::string& path);

// Returns the exit code: 0, or 2 if a flag or a file is wrong.
int RunEstimate(const EstimateCommand& command, std::ostream& out, std::ostream& err);

}  // namespace sluice::cli
