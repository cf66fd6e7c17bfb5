// A job on simulated links, step by step on a virtual clock: what a policy measures, and what
// becomes of its plans. Real policies, a model of everything else:
//
//   a rank computes for compute_s, give or take jitter; its bytes start on their way when 1 -
//   overlap of that is over, one direction after the other: up, the shards' work once all ranks'
//   are there, down. The step ends when every rank has computed and has its results.
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

// What a codec takes of the processors, in seconds of a step in which everything is coded with it.
struct CodecTimes {
  double encode_s = 0;
  double server_s = 0;
};

struct SimulatedJob {
  std::vector<SimulatedRank> ranks;
  std::vector<ControlledTensor> tensors;
  double seconds = 60;
  double overlap = 0.7;
  double jitter = 0.05;        // Of computing; standard deviation.
  double clock_jitter = 0.03;  // Of measured transfers.
  double byte_jitter = 0;      // Of sent over planned bytes.
  double held_up = 0.1;        // Share of transfers that the sender holds up.
  double server_s = 0.001;
  // What results wait for each byte that was sent up, and nobody measures: a link that all share.
  double unseen_s_per_byte = 0;
  uint64_t seed = 1;
  // Of the codec of tensor 0; none: nothing.
  std::function<CodecTimes(const compress::CodecSpec&)> times{};
};

struct SimulatedStep {
  double at_s = 0;
  double seconds = 0;  // How long it took.
  double bytes = 0;    // Up, of all ranks, and down.
  std::vector<double> up;
  double down = 0;
  double fits = 0;       // What the oracle would have sent.
  double late = 0;       // Seconds beyond computing.
  double error = 0;      // As priced.
  bool changed = false;  // A plan was made of it.
};

struct SimulatedRun {
  std::vector<SimulatedStep> steps;
  std::vector<Plan> plans;

  double MeanStep() const;
  double MeanBytes() const;
  // Steps from the one after which a rate fell until five steps in a row are no more than 10 %
  // late.
  int StepsToSettleAfterDrop(double at_s, double compute_s) const;
  // Steps from a rise until the bytes are at least 0.8 of the oracle's.
  int StepsToSettleAfterRise(double at_s) const;
  // Plans made within any ten steps, at most; and of all steps.
  double PlansPerStep() const;
};

SimulatedRun Simulate(const SimulatedJob& job, std::unique_ptr<Policy> policy);
// Knows the links: in each step sends what fits into 95 % of the time, shared out as a policy does.
SimulatedRun RunOracle(const SimulatedJob& job);

// 25 million elements in eleven tensors, three of them small.
std::vector<ControlledTensor> SomeTensors();

}  // namespace sluice::server
