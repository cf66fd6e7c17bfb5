// SPDX-License-Identifier: Apache-2.0
// Scenarios and figures with round numbers.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "planning/estimate/machine_figures.h"
#include "planning/estimate/scenario.h"

namespace sluice::planning {

inline compress::CodecSpec Spec(const std::string& text) {
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(compress::CodecSpec{});
}

// Processors take no time, and none has no headers.
inline MachineFigures FreeProcessors() {
  return {.cores = 2,
          .codecs = {{"none", {32, 0, 0}}, {"int8", {8, 0, 0}}, {"topk:1%+int4", {0.08, 0, 0}}}};
}

// A million elements, dense, over links that carry 1 MB of payload per second.
inline Scenario DenseMillion(uint32_t workers, uint32_t shards) {
  return {.model = {.name = "million", .elements = 1e6, .tensors = 1},
          .workers = workers,
          .shards = shards,
          .placement = Placement::kSeparate,
          .link = {.bits_per_second = 8e6 / 0.956}};
}

inline ModelSize ResNet50Size() {
  return {.name = "resnet50", .elements = 25'557'032, .tensors = 161, .small_elements = 53'120};
}

}  // namespace sluice::planning
