// SPDX-License-Identifier: Apache-2.0
// RunsHash: one hash of many runs, in the order of their seeds. Equal programs give equal hashes,
// whatever the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/crc32c.h"
#include "tests/sim/sim_kinds.h"

namespace sluice {

class RunsHash {
 public:
  // Adds the run of the seed at this place, counted from 0.
  void Add(size_t place, const SimOutcome& outcome) {
    if (hashes_.size() <= place) hashes_.resize(place + 1);
    hashes_[place] = {outcome.trace_hash, outcome.parameters_hash};
  }
  uint32_t value() const {
    return Crc32c(absl::Span(reinterpret_cast<const std::byte*>(hashes_.data()),
                             hashes_.size() * sizeof(Hashes)));
  }

 private:
  struct Hashes {
    uint32_t trace = 0;
    uint32_t parameters = 0;
  };
  std::vector<Hashes> hashes_;
};

}  // namespace sluice
