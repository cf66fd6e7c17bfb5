// SPDX-License-Identifier: Apache-2.0
// The pages of a worker's HTTP port: /metrics, /livez, /readyz and /startupz.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "net/http/http_server.h"
#include "worker/core/session.h"

namespace sluice::worker {

// State of a worker, collected for each request.
struct WorkerView {
  std::string job_name;
  std::string software_version;
  uint32_t rank = 0;
  bool metrics_enabled = true;
  double cpu_seconds = 0;                   // Time of the process.
  std::optional<SessionFigures> figures{};  // Absent before the worker has joined.
};

// docs/metrics.md explains each metric.
std::string WorkerMetrics(const WorkerView& view);

net::HttpAnswer WorkerPage(const std::string& path, const std::function<WorkerView()>& view);

}  // namespace sluice::worker
