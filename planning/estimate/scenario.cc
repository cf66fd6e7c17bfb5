// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/scenario.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::planning {
namespace {

absl::Status CheckRange(absl::string_view what, double value, double least, double most,
                        absl::string_view unit) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, unit, "; it must be from ", least, " to ", most, unit));
}

absl::Status CheckLocal(const LocalSteps& local) {
  if (absl::Status status = CheckRange("the number of local steps", local.steps, 1, 1e6, "");
      !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckRange("the number of fragments", local.fragments, 1, 64, "");
      !status.ok()) {
    return status;
  }
  if (local.steps % local.fragments != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(local.fragments, " fragments do not divide ", local.steps,
                     " local steps; choose a number of local steps that is a multiple"));
  }
  if (local.delay == 0 || local.delay < local.steps / local.fragments) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a delay of ", local.delay, " steps is not below ",
                                                 local.steps, " local steps / ", local.fragments,
                                                 " fragments"));
}

}  // namespace

absl::Status CheckScenario(const Scenario& scenario) {
  const LinkShape& link = scenario.link;
  struct Range {
    absl::string_view what;
    double value, least, most;
    absl::string_view unit;
  };
  const Range ranges[] = {
      {"the number of parameters", scenario.model.elements, 1, kParametersMax, ""},
      {"the number of workers", double(scenario.workers), 1, kWorkersMax, ""},
      {"the number of shards", double(scenario.shards), 1, kShardsMax, ""},
      {"the number of threads", double(scenario.threads), 1, kThreadsMax, ""},
      {"the number of sites", double(scenario.sites), 0, double(scenario.workers), ""},
      {"the link rate", link.bits_per_second, 1e4, kRateMax, " bit/s"},
      {"the uplink rate", link.up_rate(), 1e4, kRateMax, " bit/s"},
      {"the rate within a site", scenario.site_bits_per_second, 1e4, kRateMax, " bit/s"},
      {"the latency", link.latency_s, 0, 10, " s"},
      {"the burst of a link", link.burst_bytes, 0, 1e9, " bytes"},
      {"the compute time of a step", scenario.compute_s, 0, kSecondsMax, " s"},
      {"the overlap", scenario.overlap, 0, 1, ""},
  };
  for (const Range& range : ranges) {
    absl::Status status = CheckRange(range.what, range.value, range.least, range.most, range.unit);
    if (!status.ok()) return status;
  }
  if (scenario.relays && scenario.sites == 0) {
    return absl::InvalidArgumentError("relays need sites: give the number of sites");
  }
  if (scenario.sites > 0 && scenario.workers % scenario.sites != 0) {
    return absl::InvalidArgumentError(absl::StrCat(scenario.workers, " workers cannot be divided ",
                                                   "evenly among ", scenario.sites, " sites"));
  }
  if (scenario.sites > 0 && scenario.placement == Placement::kOneMachine) {
    return absl::InvalidArgumentError("one machine has no sites: choose another placement");
  }
  return CheckLocal(scenario.local);
}

uint32_t Links(const Scenario& scenario) {
  return scenario.sites > 0 ? scenario.sites : scenario.workers;
}

uint32_t SendersPerLink(const Scenario& scenario) {
  return scenario.relays ? 1 : scenario.workers / Links(scenario);
}

uint32_t Senders(const Scenario& scenario) { return SendersPerLink(scenario) * Links(scenario); }

}  // namespace sluice::planning
