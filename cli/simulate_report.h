// SPDX-License-Identifier: Apache-2.0
// The reports of `sluice simulate`: for people, as JSON and as charts. Pure.
#pragma once

#include <optional>
#include <string>

#include "planning/simulation/goodput.h"
#include "planning/simulation/simulation.h"

namespace sluice::cli {

// The result of a run. Equal specs give equal texts.
struct SimulatedJob {
  planning::SimulationSpec spec;
  planning::SimulationReport report;
  // With outages: the time of the same job without them, divided by its time with them.
  std::optional<double> goodput{};
};

std::string FormatSimulation(const SimulatedJob& job);
std::string SimulationJson(const SimulatedJob& job);
// Charts as SVG: the times of all steps, and the loads of links and shards.
std::string StepsChart(const planning::SimulationReport& report);
std::string LoadsChart(const planning::SimulationReport& report);

std::string FormatGoodput(const planning::GoodputSpec& spec, const planning::Goodput& goodput,
                          uint64_t seed);
std::string GoodputJson(const planning::GoodputSpec& spec, const planning::Goodput& goodput,
                        uint64_t seed);

}  // namespace sluice::cli
