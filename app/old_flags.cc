// SPDX-License-Identifier: Apache-2.0
#include "app/old_flags.h"

#include <iostream>

#include "base/release.h"

namespace sluice::app {

void WarnOldFlag(const std::string& old_name, const std::string& new_name) {
  std::cerr << "warning: " << old_name << " is now called " << new_name << "; release "
            << kOldNamesRemovedIn << " no longer takes the old name\n";
}

}  // namespace sluice::app
