// SPDX-License-Identifier: Apache-2.0
// Returns the contents of the status page as JSON; docs/metrics.md describes them.
#pragma once

#include <string>

#include "server/http/http_view.h"

namespace sluice::server {

// Always returns valid JSON, whatever other processes sent. A value that is not a finite number
// becomes null, and invalid UTF-8 is replaced.
std::string StatusJson(const HttpView& view);

}  // namespace sluice::server
