// SPDX-License-Identifier: Apache-2.0
// Notice: an effect of a core that only produces a log line.
#pragma once

#include <string>

#include "base/log.h"

namespace sluice::server {

struct Notice {
  std::string text;
  bool warning = false;  // A person should look into this.
  LogFields fields{};    // Fields of the structured log line.
};

}  // namespace sluice::server
