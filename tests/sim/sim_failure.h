// SPDX-License-Identifier: Apache-2.0
// Formats the violations that simulation tests report.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/relay_sim.h"
#include "tests/sim/survival.h"

namespace sluice {

inline std::string Failure(const SurvivalOptions& options, const SurvivalReport& report) {
  return absl::StrCat("SLUICE_SIM_SEED=", options.data_seed, " (", Describe(options), ")\n  ",
                      absl::StrJoin(report.violations, "\n  "));
}

inline std::string Failure(const RelaySimOptions& options, const RelaySimReport& report) {
  return absl::StrCat("SLUICE_SIM_SEED=", options.above.data_seed, " (", Describe(options), ")\n  ",
                      absl::StrJoin(report.all.violations, "\n  "));
}

// A job of a size that suits most schedules.
inline SurvivalOptions UsualJob(uint64_t seed) {
  SurvivalOptions options;
  options.data_seed = seed;
  options.fault_seed = seed;
  options.steps = 30;
  options.compression.uplink = *compress::ParseCodecSpec("topk:5%+int4");
  options.compression.downlink = *compress::ParseCodecSpec("topk:10%");
  options.compression.min_elements = 0;
  options.compression.layout = {.chunk_elements = 256, .bundle_elements = 256};
  return options;
}

}  // namespace sluice
