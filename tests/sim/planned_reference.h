// SPDX-License-Identifier: Apache-2.0
// PlannedReference is the reference of a job whose course cannot be derived in advance, because its
// plans depend on measurements, or because it resumes with another number of workers. It follows
// the plans that workers receive, step by step, and reports ranks that received different plans.
// The file also makes up the measurements of such a job.
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

  // All arguments outlive it.
  PlannedReference(const SurvivalOptions& options, const protocol::TensorTable& table,
                   const protocol::Layout& layout);

  // Records that the rank received the result of `step`, which announced `plan` (null if none).
  // Returns a description of the violation, or an empty string. Sets `knower_lost` if other ranks
  // had received another plan and all of them are lost.
  std::string CheckAnnounced(uint32_t rank, uint64_t step, const Plan& plan, bool* knower_lost);
  // Forgets the plans that the lost rank received.
  void Lost(uint32_t rank);
  // All processes have ended.
  void LostAll();
  // Term `term` begins with `ranks` ranks and the checkpoint after `step` that an earlier term
  // wrote, or with nothing if `step` is 0.
  void Begin(uint32_t term, uint32_t ranks, uint32_t written_in_term, uint64_t step);

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
  // Call it at the job's end.
  std::vector<std::string> violations() const;

 private:
  struct Announcement {
    Plan plan;
    std::set<uint32_t> ranks;  // Live ranks that received the announcement.
  };
  const Reference& At(uint64_t step) const;

  const SurvivalOptions& options_;
  const protocol::TensorTable& table_;
  const protocol::Layout& layout_;
  // The course of a term: the number of ranks that it began with, and the later numbers.
  struct Course {
    uint32_t ranks = 0;
    RankChanges changes;
  };
  std::map<uint32_t, Course> courses_;            // By term.
  Course course_;                                 // The course of the newest term.
  std::map<uint64_t, Announcement> told_;         // By the step whose result announced the plan.
  mutable std::unique_ptr<Reference> reference_;  // Computed as far as a caller needed.
};

// Makes up measurements of links whose rates change all the time, so that plans are frequent. They
// depend only on the step and the processes.
server::StepMeasurements MadeUpMeasurements(const SurvivalOptions& options,
                                            const protocol::TensorTable& table, uint64_t step,
                                            uint64_t incarnation);

}  // namespace sluice
