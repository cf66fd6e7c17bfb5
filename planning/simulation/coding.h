// SPDX-License-Identifier: Apache-2.0
// Coding: the costs of bundles in each step of a simulated job, as its compression plans change
// them. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planning/simulation/byte_model.h"

namespace sluice::planning {

class Coding {
 public:
  // The model must outlive the coding. `first` is the plan of the first step, or null.
  Coding(const ByteModel* model, uint32_t ranks,
         const std::shared_ptr<const protocol::CompressionPlan>& first);

  // Adds a plan that begins with a later step than all others.
  void Add(const std::shared_ptr<const protocol::CompressionPlan>& plan);
  // The costs of what a rank sends in a step. In step 0, these are parameters.
  const BundleCosts& Up(uint64_t step, uint32_t rank) const;
  // The costs of the results of a step.
  const BundleCosts& Down(uint64_t step) const;
  const BundleCosts& parameters() const { return parameters_; }

 private:
  struct Period {
    uint64_t from = 0;
    std::vector<BundleCosts> up{};  // One for all ranks, or one for each rank.
    BundleCosts down{};
  };
  const Period& At(uint64_t step) const;
  void Begin(uint64_t from, const protocol::CompressionPlan* plan);

  const ByteModel* const model_;
  const uint32_t ranks_;
  const BundleCosts parameters_;
  std::vector<Period> periods_;
};

}  // namespace sluice::planning
