// SPDX-License-Identifier: Apache-2.0
// HttpView: the state of one server for its HTTP pages. A new view is made for each request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "follow/follower_figures.h"
#include "protocol/stage_times.h"
#include "server/coordinator/job_report.h"
#include "server/coordinator/job_status.h"
#include "server/coordinator/link_tracker.h"
#include "server/shard/shard_stats.h"
#include "server/shard/snapshot_stats.h"

namespace sluice::server {

struct HttpView {
  std::string job_name;
  std::string software_version;
  uint32_t shard = 0;
  uint32_t shards = 1;
  bool ready = false;  // True if the shard has started its part of the job.
  bool metrics_enabled = true;
  ShardStats stats{};
  double residual_energy = 0;
  protocol::StageSeconds stages{};
  double cpu_seconds = 0;
  LinkStats links{};
  std::optional<follow::FollowerFigures> followers{};  // Set in jobs with followers.
  std::optional<SnapshotStats> snapshots{};            // Set in jobs with checkpoints.
  std::optional<JobStatus> job{};                      // Set on the coordinator.
  std::optional<JobReport> report{};                   // Set on the coordinator.
};

}  // namespace sluice::server
