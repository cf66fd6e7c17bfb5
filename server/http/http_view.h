// HttpView: what the HTTP port shows of one server, taken anew for each request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "protocol/stage_times.h"
#include "server/coordinator/job_report.h"
#include "server/coordinator/job_status.h"
#include "server/coordinator/link_book.h"
#include "server/shard/shard_stats.h"
#include "server/shard/snapshot_stats.h"

namespace sluice::server {

struct HttpView {
  std::string job_name;
  std::string software_version;
  uint32_t shard = 0;
  uint32_t shards = 1;
  bool ready = false;  // The shard has its part of the job.
  bool metrics_enabled = true;
  ShardStats stats{};
  double residual_energy = 0;
  protocol::StageSeconds stages{};
  double cpu_seconds = 0;
  LinkStats links{};
  std::optional<SnapshotStats> snapshots{};  // In jobs with checkpoints only.
  std::optional<JobStatus> job{};            // On the coordinator only.
  std::optional<JobReport> report{};         // Likewise.
};

}  // namespace sluice::server
