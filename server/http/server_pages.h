// What is at the paths of a server's HTTP port. `view` is called where a page shows something of
// the server.
#pragma once

#include <functional>
#include <string>

#include "net/http/http_server.h"
#include "server/http/http_view.h"

namespace sluice::server {

// Why the process is to be started again; empty: it need not be. Asked by health's thread.
using Trouble = std::function<std::string()>;

// The status page and its status.json, /metrics, and the three paths of HealthPage.
net::HttpAnswer ServerPage(const std::string& path, const std::function<HttpView()>& view,
                           const Trouble& trouble);

// /livez, /readyz and /startupz, and nothing else.
net::HttpAnswer HealthPage(const std::string& path, const std::function<HttpView()>& view,
                           const Trouble& trouble);

}  // namespace sluice::server
