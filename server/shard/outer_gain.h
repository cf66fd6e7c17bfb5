// SPDX-License-Identifier: Apache-2.0
// OuterGain: measures in local_sgd by how much an outer optimizer amplifies the workers' mean
// change. With momentum, this depends on the correlation of successive changes: if they point in
// the same direction, they add up. Pure; not thread-safe.
//
// It reads and keeps at most kSampled elements of each change of a chunk. For a chunk of the
// default size, these are 0.2 % of its elements and of the memory of its sum. The time is about 1 %
// of the time to add one worker's dense frame (0.5 us and 40 us). No result depends on it, and
// checkpoints do not contain it, so it begins again after a restart.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "job/modes.h"
#include "job/optimizer_spec.h"

namespace sluice::server {

class OuterGain {
 public:
  static constexpr size_t kSampled = 128;
  // The weight of an exchange of a chunk falls by this factor with each later one, so the last ten
  // exchanges have about two thirds of the weight.
  static constexpr double kMemory = 0.9;

  OuterGain(size_t chunks, double momentum) : momentum_(momentum), chunks_(chunks) {}

  // Records a change that the rule applies with `rate`. It must be finite. A chunk's changes all
  // have the same length.
  void Add(size_t chunk, double rate, absl::Span<const float> change);

  // Returns the cosine between each change and the previous one of its chunk: the mean over the
  // exchanges of the chunk, and over all chunks, weighted by energy. Absent before any chunk has
  // changed twice.
  std::optional<double> correlation() const;
  // Returns how far the rule moves the parameters for each unit of change in the long run, if
  // changes continue to have this correlation:
  // rate * (1 + momentum / (1 - momentum * correlation)).
  std::optional<double> gain() const;

  // Returns the memory of the samples.
  size_t bytes() const;

 private:
  struct ChunkState {
    std::vector<float> previous;  // The sample of the last change.
    double cosines = 0;           // Weighted sum over the chunk's exchanges.
    double weights = 0;           // Sum of their weights.
    double energy = 0;            // Product of the norms of the last two changes.
  };

  const double momentum_;
  double rate_ = 0;  // The rate of the last change.
  std::vector<ChunkState> chunks_;
};

// Returns nothing unless the mode has local steps and the rule is sgd with Nesterov's momentum or
// without momentum.
std::optional<OuterGain> MakeOuterGain(job::Mode mode,
                                       const std::optional<job::OptimizerSpec>& rule,
                                       size_t chunks);

}  // namespace sluice::server
