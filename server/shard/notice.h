// Notice: an effect of a core that is worth a line in the log and nothing more.
#pragma once

#include <string>

#include "base/log.h"

namespace sluice::server {

struct Notice {
  std::string text;
  bool warning = false;  // Somebody should look into it.
  LogFields fields{};    // What it is about.
};

}  // namespace sluice::server
