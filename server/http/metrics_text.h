// SPDX-License-Identifier: Apache-2.0
// Returns the Prometheus text of a view. Every sample has the labels training_job and shard.
#pragma once

#include <string>

#include "server/http/http_view.h"

namespace sluice::server {

std::string MetricsText(const HttpView& view);

}  // namespace sluice::server
