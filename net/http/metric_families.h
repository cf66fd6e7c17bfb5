// MetricFamilies: metrics of a moment in Prometheus' text format. Every sample carries the labels
// that it was made with. Not thread-safe: made anew for each request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace sluice::net {

// Of the text.
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

class MetricFamilies {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  explicit MetricFamilies(const Labels& common);
  ~MetricFamilies();

  // A family of one sample.
  void Gauge(const char* name, const char* help, double value);
  void Counter(const char* name, const char* help, double value);
  // `counts` by bucket: as many as `bounds`, and a last one without a bound.
  void Histogram(const char* name, const char* help, absl::Span<const uint64_t> counts,
                 absl::Span<const double> bounds, double sum);
  // A family that Add fills, until the next begins.
  void StartGauge(const char* name, const char* help);
  void StartCounter(const char* name, const char* help);
  void Add(const Labels& labels, double value);

  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::net
