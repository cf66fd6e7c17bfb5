// A link whose rate changes as a trace says, on a virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice::server {

// Bytes per second at a time; constant within slots of kSlot_s.
using Rate = std::function<double(double time_s)>;

inline constexpr double kSlot_s = 0.010;
inline constexpr double kGigabit = 125e6;

class SimulatedLink {
 public:
  SimulatedLink(Rate rate, double latency_s) : rate_(std::move(rate)), latency_s_(latency_s) {}

  double latency_s() const { return latency_s_; }
  double RateAt(double time_s) const { return rate_(time_s); }
  // When the last of the bytes has left, latency apart.
  double SentAt(double time_s, double bytes) const;
  // What leaves within a time.
  double Fits(double time_s, double seconds) const;

 private:
  Rate rate_;
  double latency_s_;
};

// Every trace of the same kind and seed is the same.
struct Trace {
  std::string name;
  Rate rate;
  double latency_s = 0.001;
  std::vector<double> drops{};  // Times of sudden changes.
  std::vector<double> rises{};
};

Trace StepTrace();   // 10 Gb/s, 1 Gb/s from 20 s to 40 s.
Trace RampTrace();   // 10 to 1 Gb/s in 20 s, and back.
Trace SineTrace();   // Around 5 Gb/s, factor 2.5, 30 s.
Trace BurstTrace();  // 5 Gb/s, a fifth of it for 0.64 s of 7.76 s.
Trace NoiseTrace(uint64_t seed,
                 double sigma = 0.25);  // Lognormal, anew every 80 ms, on a slow sine.
Trace SteadyTrace(double rate, double latency_s);

}  // namespace sluice::server
