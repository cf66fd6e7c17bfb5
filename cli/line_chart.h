// SPDX-License-Identifier: Apache-2.0
// Charts as SVG. Equal figures give equal bytes. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points{};  // x and y, by x.
};
// A line for each series, from y = 0 on. Needs at least one point.
std::string LineChart(const std::string& title, const std::string& x_label,
                      const std::string& y_label, const std::vector<ChartLine>& lines);

struct ChartBar {
  std::string name;
  double mean = 0;  // Shares of 1.
  double max = 0;
};
// A bar for each mean, with a lighter one to the maximum, on a scale from 0 to 100 %.
std::string LoadChart(const std::string& title, const std::vector<ChartBar>& bars);

}  // namespace sluice::cli
