// SPDX-License-Identifier: Apache-2.0
#include "server/control/step_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "server/control/median.h"

namespace sluice::server {
namespace {

double MostUp(const ByteLimits& bytes) {
  return *std::max_element(bytes.up.begin(), bytes.up.end());
}

}  // namespace

void StepMemory::Begin(const CodecPick& pick, ByteLimits bytes) {
  now_ = pick;
  bytes_ = std::move(bytes);
  beyonds_.clear();
  const Tried* const before = Find(pick);
  before_s_ = before == nullptr ? std::nullopt : std::optional(before->beyond_s);
}

void StepMemory::Add(double beyond_s) {
  beyonds_.push_back(beyond_s);
  if (beyonds_.size() > kStepsMax) beyonds_.pop_front();
}

void StepMemory::Settle(uint64_t step) {
  std::erase_if(tried_, [&](const auto& tried) { return tried.second.step + kSteps < step; });
  if (beyonds_.size() < kStepsMin) return;
  double beyond_s = Median({beyonds_.begin(), beyonds_.end()});
  std::vector<double> off;
  for (const double each : beyonds_) off.push_back(std::abs(each - beyond_s));
  // The standard error of the median, computed from the median absolute deviation. Assumes that the
  // values are normally distributed.
  noise_s_ = 1.86 * Median(std::move(off)) / std::sqrt(static_cast<double>(beyonds_.size()));
  if (before_s_) beyond_s = std::midpoint(beyond_s, *before_s_);
  Put(beyond_s, step);
}

void StepMemory::Put(double beyond_s, uint64_t step) {
  if (tried_.size() >= kPicksMax && !tried_.contains(now_)) {
    tried_.erase(std::min_element(tried_.begin(), tried_.end(), [](const auto& a, const auto& b) {
      return a.second.step < b.second.step;
    }));
  }
  tried_[now_] = {.bytes = bytes_, .beyond_s = beyond_s, .step = step};
}

const StepMemory::Tried* StepMemory::Find(const CodecPick& pick) const {
  const auto tried = tried_.find(pick);
  return tried == tried_.end() ? nullptr : &tried->second;
}

double StepMemory::Beyond(const ByteLimits& bytes) const {
  double nearest = HUGE_VAL;
  uint64_t newest = 0;
  double beyond_s = 0;
  for (const auto& [other, tried] : tried_) {
    const double distance = std::abs(std::log(MostUp(bytes) / MostUp(tried.bytes))) +
                            std::abs(std::log(bytes.down / tried.bytes.down));
    if (distance > nearest || (distance == nearest && tried.step < newest)) continue;
    nearest = distance;
    newest = tried.step;
    beyond_s = tried.beyond_s;
  }
  return beyond_s;
}

}  // namespace sluice::server
