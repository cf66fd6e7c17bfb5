// SPDX-License-Identifier: Apache-2.0
#include "cli/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace sluice::cli {
namespace {

constexpr double kChartWidth = 720;
constexpr double kChartHeight = 400;
constexpr double kLeft = 140;
constexpr double kTop = 36;
constexpr double kRight = 150;
constexpr double kBottom = 50;
// As in bench/experiments/plot.py: distinct for colour-blind readers.
constexpr std::array<const char*, 6> kColors = {"#0072b2", "#d55e00", "#009e73",
                                                "#cc79a7", "#e69f00", "#56b4e9"};

std::string TextAt(double x, double y, const std::string& words, const char* anchor) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         absl::StrReplaceAll(words, {{"&", "&amp;"}, {"<", "&lt;"}}));
}

std::string Rule(double x1, double y1, double x2, double y2) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1, y1, x2, y2);
}

std::string Box(double x, double y, double width, double height, const char* color) {
  return absl::StrFormat(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width,
      height, color);
}

std::string Begin(const std::string& title) {
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                      "font-family=\"sans-serif\" font-size=\"12\">\n",
                      kChartWidth, kChartHeight),
      Box(0, 0, kChartWidth, kChartHeight, "white"), TextAt(kLeft, 20, title, "start"));
}

// Returns about five round numbers up to `high`.
std::vector<double> Ticks(double high) {
  const double power = std::pow(10, std::floor(std::log10(high / 4)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (high / (factor * power) <= 6) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; i * step <= high * (1 + 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

}  // namespace

std::string LineChart(const std::string& title, const std::string& x_label,
                      const std::string& y_label, const std::vector<ChartLine>& lines) {
  double x_max = 1e-9;
  double y_max = 1e-9;
  for (const ChartLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      x_max = std::max(x_max, x);
      y_max = std::max(y_max, y);
    }
  }
  const auto to_x = [&](double x) { return kLeft + x / x_max * (kChartWidth - kLeft - kRight); };
  const auto to_y = [&](double y) {
    return kChartHeight - kBottom - y / y_max * (kChartHeight - kTop - kBottom);
  };
  std::string svg = Begin(title);
  for (const double tick : Ticks(y_max)) {
    absl::StrAppend(&svg, Rule(kLeft, to_y(tick), kChartWidth - kRight, to_y(tick)),
                    TextAt(kLeft - 6, to_y(tick) + 4, absl::StrFormat("%g", tick), "end"));
  }
  for (const double tick : Ticks(x_max)) {
    absl::StrAppend(&svg, TextAt(to_x(tick), kChartHeight - kBottom + 16,
                                 absl::StrFormat("%g", tick), "middle"));
  }
  absl::StrAppend(&svg,
                  TextAt((kLeft + kChartWidth - kRight) / 2, kChartHeight - 12, x_label, "middle"),
                  TextAt(6, kTop + 4, y_label, "start"));
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* const color = kColors[i % kColors.size()];
    std::string points;
    for (const auto& [x, y] : lines[i].points) {
      absl::StrAppendFormat(&points, "%.1f,%.1f ", to_x(x), to_y(y));
    }
    absl::StrAppendFormat(
        &svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", points,
        color);
    const double y = kTop + 10 + 18 * static_cast<double>(i);
    absl::StrAppend(&svg, Box(kChartWidth - kRight + 12, y - 8, 10, 10, color),
                    TextAt(kChartWidth - kRight + 28, y, lines[i].name, "start"));
  }
  return svg + "</svg>\n";
}

std::string LoadChart(const std::string& title, const std::vector<ChartBar>& bars) {
  const double width = kChartWidth - kLeft - kRight;
  const double height =
      (kChartHeight - kTop - kBottom) / static_cast<double>(std::max<size_t>(bars.size(), 1));
  std::string svg = Begin(title);
  for (int percent = 0; percent <= 100; percent += 20) {
    const double x = kLeft + width * percent / 100;
    absl::StrAppend(&svg, Rule(x, kTop, x, kChartHeight - kBottom),
                    TextAt(x, kChartHeight - kBottom + 16, absl::StrCat(percent, " %"), "middle"));
  }
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kTop + height * static_cast<double>(i);
    absl::StrAppend(&svg,
                    Box(kLeft, y + 2, width * std::min(bars[i].max, 1.0), height - 4, kColors[5]),
                    Box(kLeft, y + 2, width * std::min(bars[i].mean, 1.0), height - 4, kColors[0]),
                    TextAt(kLeft - 6, y + height / 2 + 4, bars[i].name, "end"));
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::cli
