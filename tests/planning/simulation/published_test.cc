// SPDX-License-Identifier: Apache-2.0
// A published set-up: ResNet-50 on 8 machines with links of 1 Gb/s, and 50 ms of computing. Without
// compression, a step takes 786 ms, so 6.4 % of the time is computing. With compression, it takes
// at most 72 ms (69.4 %).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/measure/model_tables.h"
#include "tests/planning/simulation/job.h"

namespace sluice::planning {
namespace {

SimulationReport Published(const std::string& codecs) {
  SimulationSpec spec = SpecOf(8, 8, "", codecs);
  const absl::StatusOr<protocol::TensorTable> table = bench::ModelTable("resnet50");
  if (!table.ok()) ADD_FAILURE() << table.status();
  spec.table = table.value_or(protocol::TensorTable());
  // A server on each worker's machine.
  spec.cluster.worker = {.up_bps = 1e9, .down_bps = 1e9, .latency_s = 50e-6};
  spec.cluster.colocated = true;
  spec.compute_s = 0.05;
  // A backward pass takes twice as long as a forward pass.
  spec.overlap = 2.0 / 3;
  // In docs/performance.md, a worker encodes ResNet-50 with topk in 14.5 ms.
  spec.costs = {.codec_scale = 14.5 / (1.37 * 25.557)};
  return MustSimulate(spec);
}

TEST(PublishedTest, DenseTakesThePublishedTime) {
  const SimulationReport report = Published("uplink: fp16, downlink: fp16");
  EXPECT_NEAR(report.step_s.p50, 0.786, 0.03 * 0.786);
  EXPECT_NEAR(0.05 / report.step_s.p50, 0.064, 0.003);
}

TEST(PublishedTest, CompressedIsFasterThanPublished) {
  const SimulationReport report = Published("uplink: \"topk:1%+int4\", downlink: \"topk:3%+int4\"");
  EXPECT_LT(report.step_s.p50, 0.061);
  EXPECT_LT(Published("uplink: \"topk:1%+int4\", downlink: \"topk:1%+int4\"").step_s.p50, 0.060);
  EXPECT_GT(0.05 / report.step_s.p50, 0.694);
}

}  // namespace
}  // namespace sluice::planning
