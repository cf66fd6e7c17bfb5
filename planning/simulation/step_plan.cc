// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/step_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/random.h"

namespace sluice::planning {

std::vector<BundlePlace> ReadyOrder(const protocol::TensorTable& table,
                                    const protocol::Layout& layout, uint32_t fragment) {
  std::vector<double> ready(table.size());
  double elements = 0;
  for (size_t tensor = table.size(); tensor-- > 0;) {
    elements += static_cast<double>(table[tensor].elements());
    ready[tensor] = elements;
  }
  std::vector<BundlePlace> places;
  for (uint32_t shard = 0; shard < layout.bundles.size(); ++shard) {
    for (uint32_t bundle = 0; bundle < layout.bundles[shard].size(); ++bundle) {
      const protocol::Bundle& of = layout.bundles[shard][bundle];
      if (of.chunks.empty() || of.fragment != fragment) continue;
      double last = 0;
      for (const uint32_t chunk : of.chunks) {
        last = std::max(last, ready[layout.chunks[chunk].tensor]);
      }
      places.push_back({.shard = shard, .bundle = bundle, .ready = last / elements});
    }
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const BundlePlace& a, const BundlePlace& b) { return a.ready < b.ready; });
  return places;
}

double LognormalFactor(double sigma, uint64_t seed, uint64_t a, uint64_t b) {
  if (sigma <= 0) return 1;
  CounterRandom random(seed, a, b);
  // Box and Muller.
  const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
  return std::exp(sigma * radius * std::cos(2 * std::numbers::pi * random.Uniform()));
}

double ComputeFactor(const StragglerSpec& stragglers, uint64_t seed, uint32_t worker,
                     uint64_t step) {
  double factor = LognormalFactor(stragglers.sigma, seed, worker, step);
  for (const SlowWorker& slow : stragglers.slow) {
    if (slow.worker == worker) factor *= slow.factor;
  }
  return factor;
}

}  // namespace sluice::planning
