// Notice: an effect of a core that is worth a line in the log and nothing more.
#pragma once

#include <string>

namespace sluice {

struct Notice {
  std::string text;
};

}  // namespace sluice
