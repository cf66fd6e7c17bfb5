// SPDX-License-Identifier: Apache-2.0
#include "net/http/metric_families.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>

namespace sluice::net {

struct MetricFamilies::State {
  std::vector<prometheus::ClientMetric::Label> common;
  std::vector<prometheus::MetricFamily> families;

  void Start(const char* name, const char* help, prometheus::MetricType type) {
    families.push_back({.name = name, .help = help, .type = type, .metric = {}});
  }
  prometheus::ClientMetric& AddSample() {
    prometheus::ClientMetric& metric = families.back().metric.emplace_back();
    metric.label = common;
    return metric;
  }
};

MetricFamilies::MetricFamilies(const Labels& common) : state_(std::make_unique<State>()) {
  for (const auto& [name, value] : common) state_->common.push_back({name, value});
}

MetricFamilies::~MetricFamilies() = default;

void MetricFamilies::Gauge(const char* name, const char* help, double value) {
  StartGauge(name, help);
  Add({}, value);
}

void MetricFamilies::Counter(const char* name, const char* help, double value) {
  StartCounter(name, help);
  Add({}, value);
}

void MetricFamilies::Histogram(const char* name, const char* help,
                               absl::Span<const uint64_t> counts, absl::Span<const double> bounds,
                               double sum) {
  state_->Start(name, help, prometheus::MetricType::Histogram);
  prometheus::ClientMetric::Histogram& histogram = state_->AddSample().histogram;
  uint64_t count = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    count += counts[i];
    const double bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({.cumulative_count = count, .upper_bound = bound});
  }
  histogram.sample_count = count;
  histogram.sample_sum = sum;
}

void MetricFamilies::StartGauge(const char* name, const char* help) {
  state_->Start(name, help, prometheus::MetricType::Gauge);
}

void MetricFamilies::StartCounter(const char* name, const char* help) {
  state_->Start(name, help, prometheus::MetricType::Counter);
}

void MetricFamilies::Add(const Labels& labels, double value) {
  const bool counts = state_->families.back().type == prometheus::MetricType::Counter;
  prometheus::ClientMetric& metric = state_->AddSample();
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  (counts ? metric.counter.value : metric.gauge.value) = value;
}

std::string MetricFamilies::Text() const {
  return prometheus::TextSerializer().Serialize(state_->families);
}

}  // namespace sluice::net
