// SPDX-License-Identifier: Apache-2.0
// SimulatedLink: a link on a virtual clock. Its rate follows a trace.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice::server {

// Returns bytes per second at the given time. The rate is constant within slots of kSlot_s.
using Rate = std::function<double(double time_s)>;

inline constexpr double kSlot_s = 0.010;
inline constexpr double kGigabit = 125e6;

class SimulatedLink {
 public:
  SimulatedLink(Rate rate, double latency_s) : rate_(std::move(rate)), latency_s_(latency_s) {}

  double latency_s() const { return latency_s_; }
  double RateAt(double time_s) const { return rate_(time_s); }
  // Returns the time when the last of the bytes has left the sender, without latency.
  double SentAt(double time_s, double bytes) const;
  // Returns the number of bytes that can leave within the given time.
  double Fits(double time_s, double seconds) const;

 private:
  Rate rate_;
  double latency_s_;
};

// Traces of equal kind and seed are equal.
struct Trace {
  std::string name;
  Rate rate;
  double latency_s = 0.001;
  std::vector<double> drops{};  // Times of sudden drops and rises.
  std::vector<double> rises{};
};

Trace StepTrace();   // 10 Gb/s, but 1 Gb/s from 20 s to 40 s.
Trace RampTrace();   // From 10 to 1 Gb/s within 20 s, and back.
Trace SineTrace();   // A sine around 5 Gb/s with factor 2.5 and period 30 s.
Trace BurstTrace();  // 5 Gb/s, but a fifth of it during 0.64 s of every 7.76 s.
Trace NoiseTrace(uint64_t seed,
                 // Lognormal, with a new value every 80 ms, on a slow sine.
                 double sigma = 0.25);
Trace SteadyTrace(double rate, double latency_s);

}  // namespace sluice::server
