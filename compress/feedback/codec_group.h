// CodecGroup: chunks of one sender with an equal spec (and, with scope=tensor, of one tensor): they
// share a codec and, if it takes one, a threshold, which follows the density from step to step.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "compress/chunk_config.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"
#include "compress/coding/magnitude_histogram.h"
#include "compress/saved_state.h"

namespace sluice::compress {

struct CodecGroup {
  explicit CodecGroup(const ChunkConfig& chunk);

  bool Has(const ChunkConfig& chunk) const;
  // What a chunk's codec should let through in `step`: less with a warm-up's end.
  double DensityAt(uint64_t step) const;
  // From what was counted in `step` to the next step's threshold.
  void EndStep(uint64_t step);
  void ForgetStep();

  SavedState Save() const;
  // OK if Restore can take it; `index` is for the message.
  static absl::Status CheckSaved(const SavedState& saved, size_t index);
  void Restore(const SavedState& saved);

  CodecSpec spec;
  uint32_t tensor = 0;
  std::unique_ptr<Codec> codec;
  bool observes = false;
  float threshold = 0;            // 0: each chunk takes its own.
  MagnitudeHistogram magnitudes;  // Of this step.
  uint64_t kept = 0;              // In this step.
  uint64_t elements = 0;          // Encoded in this step.
  uint64_t size = 0;              // Elements of all its chunks.
  float correction = 1;           // What the density is asked for times.
};

}  // namespace sluice::compress
