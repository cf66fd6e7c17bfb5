// SPDX-License-Identifier: Apache-2.0
#include "net/http/metric_families.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice::net {
namespace {

TEST(MetricFamilies, WritesPrometheusText) {
  const MetricFamilies::Labels common = {{"training_job", "a\"b"}};
  MetricFamilies families(common);
  families.Gauge("x", "An x.", 1.5);
  families.StartCounter("y_total", "Ys by kind.");
  families.Add({{"kind", "one"}}, 3);
  families.Add({{"kind", "two"}}, 4);
  const std::array<uint64_t, 3> counts = {2, 0, 1};
  const std::array<double, 2> bounds = {0.1, 1};
  families.Histogram("z_seconds", "Zs.", counts, bounds, 7);
  EXPECT_EQ(families.Text(),
            "# HELP x An x.\n"
            "# TYPE x gauge\n"
            "x{training_job=\"a\\\"b\"} 1.5\n"
            "# HELP y_total Ys by kind.\n"
            "# TYPE y_total counter\n"
            "y_total{training_job=\"a\\\"b\",kind=\"one\"} 3\n"
            "y_total{training_job=\"a\\\"b\",kind=\"two\"} 4\n"
            "# HELP z_seconds Zs.\n"
            "# TYPE z_seconds histogram\n"
            "z_seconds_count{training_job=\"a\\\"b\"} 3\n"
            "z_seconds_sum{training_job=\"a\\\"b\"} 7\n"
            "z_seconds_bucket{training_job=\"a\\\"b\",le=\"0.1\"} 2\n"
            "z_seconds_bucket{training_job=\"a\\\"b\",le=\"1\"} 2\n"
            "z_seconds_bucket{training_job=\"a\\\"b\",le=\"+Inf\"} 3\n");
}

}  // namespace
}  // namespace sluice::net
