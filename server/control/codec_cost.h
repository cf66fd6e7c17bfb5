// CodecCost: what a codec takes of the processors, before anything was measured.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compress/codec_spec.h"

namespace sluice::server {

// What all tensors coded with it take of the processors in a step, in seconds.
struct CodecCost {
  compress::CodecSpec spec{};
  double encode_s = 0;  // On a worker, beyond what is hidden. Measured anew where it is in use.
  double server_s = 0;  // On the slowest shard: decoding all ranks' and encoding the result.
  double apply_s = 0;   // On a worker.
};

// Of one thread of a server of today, which reads, changes and writes 12 bytes of memory in a
// nanosecond; by what bench/codec_bench measures in parts of that (bench/README.md). `elements`:
// of a worker, `shard_elements`: of the largest shard's part of them. INVALID_ARGUMENT: a codec
// that no plan can choose.
absl::StatusOr<CodecCost> UsualCost(const compress::CodecSpec& spec, uint64_t elements,
                                    uint64_t shard_elements, uint32_t ranks);

}  // namespace sluice::server
