// SPDX-License-Identifier: Apache-2.0
// The pages of a server's HTTP port. Pages that show the server's state call `view`.
#pragma once

#include <functional>
#include <string>

#include "net/http/http_server.h"
#include "server/http/http_view.h"

namespace sluice::server {

// Returns why the process must be restarted, or an empty string. Called on the thread of the health
// page.
using Trouble = std::function<std::string()>;

// Serves the status page and its status.json, /metrics, and the three paths of HealthPage.
net::HttpAnswer ServerPage(const std::string& path, const std::function<HttpView()>& view,
                           const Trouble& trouble);

// Serves only /livez, /readyz and /startupz.
net::HttpAnswer HealthPage(const std::string& path, const std::function<HttpView()>& view,
                           const Trouble& trouble);

}  // namespace sluice::server
