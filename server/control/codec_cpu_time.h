// SPDX-License-Identifier: Apache-2.0
// CodecCpuTime: estimates the processor time of a codec before it is measured.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compress/codec_spec.h"

namespace sluice::server {

// Processor time, in seconds, of one step in which all tensors use `spec`.
struct CodecCpuTime {
  compress::CodecSpec spec{};
  // The part of a worker's encoding time that computing does not hide. Measured during use.
  double encode_s = 0;
  // Time on the slowest shard to decode the frames of all ranks and to encode the result.
  double server_s = 0;
  double apply_s = 0;  // Time to decode results on a worker.
};

// Estimates the times for one thread of a current server with a memory bandwidth of 12 bytes per
// nanosecond. The factors come from bench/codec_bench (bench/README.md). `elements` counts the
// elements of a worker; `shard_elements` counts those of the largest shard. Fails with
// INVALID_ARGUMENT if no plan can choose the codec.
absl::StatusOr<CodecCpuTime> UsualCost(const compress::CodecSpec& spec, uint64_t elements,
                                       uint64_t shard_elements, uint32_t ranks);

}  // namespace sluice::server
