// SPDX-License-Identifier: Apache-2.0
#include "server/control/compute_time.h"

#include "server/control/median.h"

namespace sluice::server {
namespace {

double UsualOf(const std::deque<double>& values) {
  return values.empty() ? 0 : Median({values.begin(), values.end()});
}

void Keep(std::deque<double>* kept, double value) {
  kept->push_back(value);
  if (kept->size() > ComputeTime::kSteps) kept->pop_front();
}

}  // namespace

void ComputeTime::AddStep(const StepMeasurements& measured) {
  compute_.resize(measured.ranks.size());
  for (size_t rank = 0; rank < compute_.size(); ++rank) {
    const double compute_s = measured.ranks[rank].compute_s;
    if (compute_s > 0) Keep(&compute_[rank], compute_s);
  }
  Keep(&server_, measured.server_s);
}

double ComputeTime::compute_s() const {
  double fastest = 0;
  for (const std::deque<double>& rank : compute_) {
    const double usual = UsualOf(rank);
    if (usual > 0 && (fastest == 0 || usual < fastest)) fastest = usual;
  }
  return fastest;
}

double ComputeTime::server_s() const { return UsualOf(server_); }

}  // namespace sluice::server
