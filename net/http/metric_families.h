// SPDX-License-Identifier: Apache-2.0
// MetricFamilies: a snapshot of metrics in Prometheus' text format. Every sample carries the labels
// given to the constructor. Each request creates its own object. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace sluice::net {

// Content type of the text.
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

class MetricFamilies {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  explicit MetricFamilies(const Labels& common);
  ~MetricFamilies();

  // These add a family with a single sample.
  void Gauge(const char* name, const char* help, double value);
  void Counter(const char* name, const char* help, double value);
  // Adds a histogram. `counts` has one entry for each of `bounds`, and one more for values above
  // the last bound.
  void Histogram(const char* name, const char* help, absl::Span<const uint64_t> counts,
                 absl::Span<const double> bounds, double sum);
  // These begin a family. Add appends samples to the family until the next one begins.
  void StartGauge(const char* name, const char* help);
  void StartCounter(const char* name, const char* help);
  void Add(const Labels& labels, double value);

  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::net
