// The Prometheus text of a view. docs/metrics.md lists the names.
#pragma once

#include <string>

#include "server/http/http_view.h"

namespace sluice {

std::string MetricsText(const HttpView& view);

}  // namespace sluice
