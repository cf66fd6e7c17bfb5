// SPDX-License-Identifier: Apache-2.0
// SimulatedJob: a job on simulated links that runs step by step on a virtual clock. It feeds
// measurements to a real policy and follows the policy's plans. Everything except the policy is a
// model.
//
// A rank computes for compute_s with jitter. After the share 1 - overlap of that time,
// communication starts. Its stages follow one another: the rank's bytes go up; the shards work once
// the bytes of all ranks have arrived; the results go down. The step ends when every rank has
// computed and has received its results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/control/controller.h"
#include "tests/server/control/simulated_link.h"

namespace sluice::server {

struct SimulatedRank {
  Trace up;
  Trace down;
  double compute_s = 0.080;
};

// Processor time of a codec in seconds, for a step in which this codec codes all tensors.
struct CodecTimes {
  double encode_s = 0;
  double server_s = 0;
};

struct SimulatedJob {
  std::vector<SimulatedRank> ranks;
  std::vector<ControlledTensor> tensors;
  double seconds = 60;
  double overlap = 0.7;
  double jitter = 0.05;        // Relative standard deviation of the compute time.
  double clock_jitter = 0.03;  // Relative standard deviation of the measured transfer times.
  double byte_jitter = 0;      // Relative standard deviation of sent bytes / planned bytes.
  double held_up = 0.1;        // Share of transfers that the sender delays.
  double server_s = 0.001;
  // Delay of the results for each byte sent up, which no measurement shows. It simulates a link
  // that all ranks share.
  double unseen_s_per_byte = 0;
  uint64_t seed = 1;
  // Returns the times of tensor 0's codec. If unset, codecs take no time.
  std::function<CodecTimes(const compress::CodecSpec&)> times{};
};

struct SimulatedStep {
  double at_s = 0;
  double seconds = 0;  // Duration of the step.
  double bytes = 0;    // Bytes up from all ranks, plus bytes down.
  std::vector<double> up;
  double down = 0;
  double fits = 0;       // Bytes that the oracle would have sent.
  double late = 0;       // Seconds by which the step exceeds the compute time.
  double error = 0;      // Computed from the codecs' prices.
  bool changed = false;  // The step resulted in a new plan.
};

struct SimulatedRun {
  std::vector<SimulatedStep> steps;
  std::vector<PolicyDecision> plans;

  double MeanStep() const;
  double MeanBytes() const;
  // Returns the number of steps after a drop of a rate until five consecutive steps are at most 10
  // % late.
  int StepsToSettleAfterDrop(double at_s, double compute_s) const;
  // Returns the number of steps after a rise until the bytes are at least 0.8 of the oracle's.
  int StepsToSettleAfterRise(double at_s) const;
  // Returns the share of steps that resulted in a new plan.
  double PlansPerStep() const;
};

SimulatedRun Simulate(const SimulatedJob& job, std::unique_ptr<Policy> policy);
// Runs an oracle that knows the links. In each step, the oracle sends the bytes that fit in 95 % of
// the time. It divides the time in the same way as a policy.
SimulatedRun RunOracle(const SimulatedJob& job);

// Returns eleven tensors with 25 million elements in total. Three of the tensors are small.
std::vector<ControlledTensor> SomeTensors();

}  // namespace sluice::server
