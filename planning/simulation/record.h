// SPDX-License-Identifier: Apache-2.0
// Record: what a simulated job has done, by step. The report and the compression control use it.
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "planning/simulation/event_queue.h"
#include "server/control/measurements.h"

namespace sluice::planning {

// One worker's exchange.
struct ExchangeTimes {
  Nanos begins = 0;    // When it began to compute.
  Nanos ends = 0;      // When it had applied the results.
  Nanos computes = 0;  // For how long it computed.
};

class Record {
 public:
  // With `measures`, the record keeps what the compression control needs.
  Record(uint32_t ranks, bool measures) : ranks_(ranks), measures_(measures) {}

  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const absl::Status& status() const { return status_; }

  void Exchanged(uint64_t step, const ExchangeTimes& times) { exchanges_[step].push_back(times); }
  const std::map<uint64_t, std::vector<ExchangeTimes>>& exchanges() const { return exchanges_; }

  // Bytes of messages, without those of step 0.
  void SentUp(uint64_t bytes) { bytes_up_ += bytes; }
  void SentDown(uint64_t bytes) { bytes_down_ += bytes; }
  uint64_t bytes_up() const { return bytes_up_; }
  uint64_t bytes_down() const { return bytes_down_; }

  // The measurements of a rank in a step, or null if nothing needs them.
  server::RankMeasurements* Measured(uint64_t step, uint32_t rank) {
    if (!measures_) return nullptr;
    std::vector<server::RankMeasurements>& ranks = measured_[step];
    ranks.resize(ranks_);
    return &ranks[rank];
  }
  // Removes and returns the measurements of a step and forgets those of earlier steps.
  std::vector<server::RankMeasurements> TakeMeasured(uint64_t step) {
    std::vector<server::RankMeasurements> taken = std::move(measured_[step]);
    taken.resize(ranks_);
    measured_.erase(measured_.begin(), measured_.upper_bound(step));
    return taken;
  }

 private:
  const uint32_t ranks_;
  const bool measures_;
  absl::Status status_;
  std::map<uint64_t, std::vector<ExchangeTimes>> exchanges_;            // By step.
  std::map<uint64_t, std::vector<server::RankMeasurements>> measured_;  // By step and rank.
  uint64_t bytes_up_ = 0;
  uint64_t bytes_down_ = 0;
};

}  // namespace sluice::planning
