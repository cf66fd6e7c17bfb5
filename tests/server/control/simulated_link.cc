// SPDX-License-Identifier: Apache-2.0
#include "tests/server/control/simulated_link.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/server/control/small_tensors.h"

namespace sluice::server {
namespace {

double SlotEnd(double time_s) { return (std::floor(time_s / kSlot_s + 1e-9) + 1) * kSlot_s; }

double Wave(double time_s, double period_s) {
  return std::sin(2 * std::numbers::pi * time_s / period_s);
}

}  // namespace

double SimulatedLink::SentAt(double time_s, double bytes) const {
  while (true) {
    const double end = SlotEnd(time_s);
    const double rate = rate_(time_s);
    if (bytes <= rate * (end - time_s)) return time_s + bytes / rate;
    bytes -= rate * (end - time_s);
    time_s = end;
  }
}

double SimulatedLink::Fits(double time_s, double seconds) const {
  const double until = time_s + seconds;
  double bytes = 0;
  while (time_s < until) {
    const double end = std::min(SlotEnd(time_s), until);
    bytes += rate_(time_s) * (end - time_s);
    time_s = end;
  }
  return bytes;
}

Trace StepTrace() {
  return {.name = "step",
          .rate = [](double t) { return (t < 20 || t >= 40 ? 10 : 1) * kGigabit; },
          .drops = {20},
          .rises = {40}};
}

Trace RampTrace() {
  return {.name = "ramp", .rate = [](double t) {
            const double way = std::abs(t - 30) < 20 ? 1 - std::abs(t - 30) / 20 : 0;
            return (10 - 9 * way) * kGigabit;
          }};
}

Trace SineTrace() {
  return {.name = "sine",
          .rate = [](double t) { return 5 * kGigabit * std::pow(2.5, Wave(t, 30)); }};
}

Trace BurstTrace() {
  return {.name = "bursts", .rate = [](double t) {
            return 5 * kGigabit * (std::fmod(t, 97 * 0.08) >= 89 * 0.08 ? 0.2 : 1);
          }};
}

Trace NoiseTrace(uint64_t seed, double sigma) {
  return {.name = "noise", .rate = [seed, sigma](double t) {
            CounterRandom random(seed, 7, static_cast<uint64_t>(t / 0.08));
            return 5 * kGigabit * std::pow(1.3, Wave(t, 40)) * std::exp(sigma * Normal(&random));
          }};
}

Trace SteadyTrace(double rate, double latency_s) {
  return {.name = "steady", .rate = [rate](double) { return rate; }, .latency_s = latency_s};
}

}  // namespace sluice::server
