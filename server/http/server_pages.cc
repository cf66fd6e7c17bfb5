// SPDX-License-Identifier: Apache-2.0
#include "server/http/server_pages.h"

#include "net/http/content_policy.h"
#include "net/http/metric_families.h"
#include "server/http/metrics_text.h"
#include "server/http/status_json.h"
#include "server/http/status_page.h"

namespace sluice::server {

net::HttpAnswer HealthPage(const std::string& path, const std::function<HttpView()>& view,
                           const Trouble& trouble) {
  // Any answer shows that the process has started. The job itself may wait much longer for other
  // processes.
  if (path == "/startupz") return {.body = "started\n"};
  if (path == "/livez") {
    const std::string why = trouble();
    if (why.empty()) return {.body = "alive\n"};
    return {.status = 503, .body = why + "\n"};
  }
  if (path == "/readyz") {
    if (view().ready) return {.body = "ready\n"};
    return {.status = 503, .body = "the job has not started\n"};
  }
  return {.status = 404, .body = "not found; there are /livez, /readyz and /startupz\n"};
}

net::HttpAnswer ServerPage(const std::string& path, const std::function<HttpView()>& view,
                           const Trouble& trouble) {
  if (path == "/metrics") {
    const HttpView seen = view();
    if (!seen.metrics_enabled) {
      return {.status = 404, .body = "the job has metrics.enabled: false\n"};
    }
    return {.type = net::kMetricsType, .body = MetricsText(seen)};
  }
  if (path == "/status.json") {
    return {.type = "application/json; charset=utf-8", .body = StatusJson(view())};
  }
  if (path == "/") {
    static const std::string* const policy = new std::string(net::PolicyOf(StatusPage()));
    return {
        .type = "text/html; charset=utf-8", .body = std::string(StatusPage()), .policy = *policy};
  }
  net::HttpAnswer health = HealthPage(path, view, trouble);
  if (health.status != 404) return health;
  return {
      .status = 404,
      .body = "not found; there are /, /status.json, /metrics, /livez, /readyz and /startupz\n"};
}

}  // namespace sluice::server
