// What the status page shows, as JSON: docs/metrics.md says what is in it.
#pragma once

#include <string>

#include "server/http/http_view.h"

namespace sluice::server {

// Always valid JSON, whatever others wrote: what is no number is null, what is no UTF-8 is
// replaced.
std::string StatusJson(const HttpView& view);

}  // namespace sluice::server
