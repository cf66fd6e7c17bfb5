// PlannedReference: the reference of a job whose plans go by what is measured, so that they follow
// from nothing: it goes by what workers were told, step after step, and finds who was told
// something else than others. And what such a job measures, made up.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/control/measurements.h"
#include "tests/sim/reference.h"

namespace sluice {

class PlannedReference final : public JobReference {
 public:
  using Plan = std::shared_ptr<const protocol::CompressionPlan>;

  // All outlive it.
  PlannedReference(const SurvivalOptions& options, const protocol::TensorTable& table,
                   const protocol::Layout& layout);

  // The rank has the result of this step, which announced the plan; null: none. What is wrong with
  // that; empty: nothing. `knower_lost`: set if others had been told something else, who are gone.
  std::string Told(uint32_t rank, uint64_t step, const Plan& plan, bool* knower_lost);
  // What the rank was told is forgotten with it.
  void Lost(uint32_t rank);
  // The job goes on from the checkpoint after `step`.
  void GoBack(uint64_t step);

  const ReferenceBundle& bundle(const BundleKey& key) const override {
    return At(key.step).bundle(key);
  }
  const std::vector<std::vector<float>>& parameters() const override {
    return At(options_.steps).parameters();
  }
  absl::Span<const float> UplinkResidual(uint32_t rank, uint32_t chunk) const override {
    return At(options_.steps).UplinkResidual(rank, chunk);
  }
  absl::Span<const float> DownlinkResidual(uint32_t chunk) const override {
    return At(options_.steps).DownlinkResidual(chunk);
  }
  // At the job's end.
  std::vector<std::string> violations() const;

 private:
  struct Announcement {
    Plan plan;
    std::set<uint32_t> ranks;  // That know of it and live.
  };
  const Reference& At(uint64_t step) const;

  const SurvivalOptions& options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  std::map<uint64_t, Announcement> told_;         // By the step whose result it came with.
  mutable std::unique_ptr<Reference> reference_;  // As far as it was asked for.
};

// Links whose rates change all the time, so that plans are many. By step and process alone.
server::StepMeasurements MadeUpMeasurements(const SurvivalOptions& options,
                                            const protocol::TensorTable& table, uint64_t step,
                                            uint64_t incarnation);

}  // namespace sluice
