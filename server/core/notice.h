// Notice: an effect of a core that is worth a line in the log and nothing more.
#pragma once

#include <string>

namespace sluice {

struct Notice {
  std::string text;
  bool warning = false;  // Somebody should look into it.
};

}  // namespace sluice
