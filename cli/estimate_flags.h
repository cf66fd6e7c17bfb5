// SPDX-License-Identifier: Apache-2.0
// The flags of `sluice estimate`.
#pragma once

#include <functional>

#include "cli/calibration.h"

namespace CLI {
class App;
}

namespace sluice::cli {

// Adds the command to `app`. Parsing stores its action in `*chosen`. Both must outlive the parsing.
// `calibration` gives the programs of --calibrate.
void AddEstimate(const CalibrationOptions& calibration, CLI::App* app,
                 std::function<int()>* chosen);

}  // namespace sluice::cli
