// SPDX-License-Identifier: Apache-2.0
// Sample values for round-trip tests. Each field differs from its default and from the other
// fields.
#pragma once

#include <memory>

#include "compress/codec_spec.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"

namespace sluice::protocol {

inline Sender SampleSender() {
  return {.job_uid = 101,
          .term = 102,
          .rank = 103,
          .incarnation = 104,
          .generation = 105,
          .server_incarnation = 106};
}

inline CheckpointPart SamplePart() {
  return {.term = 3,
          .step = 1000,
          .name = "shard-1-term-3.state",
          .bytes = uint64_t{5} << 32,
          .checksum = 0xDEADBEEF,
          .error = "the disk is full",
          .server = 4,
          .unreadable = true,
          .file = "shard-1-term-3.state.2"};
}

inline DiskWait SampleWait() {
  return {.what = "its part to be read", .lasts = absl::Seconds(12.5), .trouble = "no such file"};
}

inline TensorTable SampleTable() {
  return {{.name = "w", .shape = {4, 8}, .strides = {8, 1}, .dtype = DType::kFloat32},
          {.name = "mean",
           .shape = {16},
           .strides = {1},
           .dtype = DType::kBFloat16,
           .role = TensorRole::kBuffer}};
}

inline LayoutParameters SampleLayout() {
  return {.chunk_elements = 51, .bundle_elements = 52, .fragments = 53};
}

inline CompressionPlan SamplePlan() {
  return {.id = 61,
          .effective_step = 62,
          .entries = {{.direction = Direction::kUplink,
                       .codec = compress::ParseCodecSpec("topk:1%+int4").value(),
                       .tensors = {1, 3},
                       .ranks = {2, 5}},
                      {.direction = Direction::kDownlink,
                       .codec = compress::ParseCodecSpec("int8").value(),
                       .tensors = {4}}},
          .reason = "rank 2 is slow",
          .momentum = 0.75F};
}

inline ShardPlace SamplePlace(uint32_t shard) {
  return {.shard = shard, .address = "shard:7000", .server_incarnation = 70 + shard};
}

}  // namespace sluice::protocol
