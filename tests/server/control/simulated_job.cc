// SPDX-License-Identifier: Apache-2.0
#include "tests/server/control/simulated_job.h"

#include <algorithm>
#include <cmath>

#include "server/control/codec_rate_distortion.h"
#include "server/control/median.h"
#include "tests/server/control/small_tensors.h"

namespace sluice::server {
namespace {

constexpr double kBundles[] = {0.3, 0.25, 0.2, 0.12, 0.08, 0.05};
constexpr double kHeartbeat = 64;
constexpr double kOracleMargin = 0.95;

class Clockwork {
 public:
  explicit Clockwork(const SimulatedJob& job) : job_(job) {
    for (const SimulatedRank& rank : job.ranks) {
      up_.emplace_back(rank.up.rate, rank.up.latency_s);
      down_.emplace_back(rank.down.rate, rank.down.latency_s);
    }
  }

  // Returns the bytes that fit, computed from the links' future rates.
  Coding OracleBytes(double at_s, std::vector<double>* up) const {
    std::vector<double> up_rates;
    std::vector<double> down_rates;
    double compute = job_.ranks[0].compute_s;
    for (size_t rank = 0; rank < up_.size(); ++rank) {
      compute = std::min(compute, job_.ranks[rank].compute_s);
      up_rates.push_back(up_[rank].RateAt(at_s));
      down_rates.push_back(down_[rank].RateAt(at_s));
    }
    const double down_rate = Median(down_rates);
    const double share = down_rate / (down_rate + Median(up_rates));
    const double start = at_s + (1 - job_.overlap) * compute;
    const double time = job_.overlap * compute - job_.server_s;
    Coding down;
    down.bytes = HUGE_VAL;
    for (size_t rank = 0; rank < up_.size(); ++rank) {
      const double latency = up_[rank].latency_s() + down_[rank].latency_s();
      const double free = kOracleMargin * std::max(time - latency, 0.1 * time);
      up->push_back(up_[rank].Fits(start, free * share));
      down.bytes = std::min(down.bytes, down_[rank].Fits(start + free * share, free * (1 - share)));
    }
    return down;
  }

  StepMeasurements Step(uint64_t step, double at_s, const std::vector<double>& up, double down,
                        const CodecTimes& times, SimulatedStep* done) {
    CounterRandom random(job_.seed, 1, step);
    StepMeasurements measured;
    measured.step = step;
    measured.server_s = job_.server_s + times.server_s;
    std::vector<double> computed;
    double arrived = at_s;
    for (size_t rank = 0; rank < up.size(); ++rank) {
      RankMeasurements seen;
      seen.compute_s =
          job_.ranks[rank].compute_s * std::max(0.5, 1 + job_.jitter * Normal(&random));
      computed.push_back(at_s + seen.compute_s);
      seen.encode_s = times.encode_s;
      const double start = at_s + (1 - job_.overlap) * seen.compute_s + times.encode_s;
      const double last = Send(up_[rank], start, up[rank], &random, &seen.up);
      seen.arrival_s = last - at_s;
      seen.bytes_up = static_cast<uint64_t>(up[rank]);
      arrived = std::max(arrived, last);
      measured.ranks.push_back(std::move(seen));
    }
    double sent = 0;
    for (const double bytes : up) sent += bytes;
    const double answered = arrived + measured.server_s + sent * job_.unseen_s_per_byte;
    double end = 0;
    for (size_t rank = 0; rank < up.size(); ++rank) {
      const double has = Send(down_[rank], answered, down, &random, &measured.ranks[rank].down);
      measured.ranks[rank].exposed_s = std::max(0.0, has - computed[rank]);
      end = std::max({end, has, computed[rank]});
    }
    measured.bytes_down = static_cast<uint64_t>(down);
    done->at_s = at_s;
    done->seconds = end - at_s;
    done->late = end - *std::max_element(computed.begin(), computed.end());
    done->up = up;
    done->down = down;
    done->bytes = down;
    for (const double bytes : up) done->bytes += bytes;
    return measured;
  }

 private:
  // Returns the time when the last bytes have arrived.
  double Send(const SimulatedLink& link, double at_s, double bytes, CounterRandom* random,
              std::vector<Transfer>* seen) const {
    bytes *= std::exp(job_.byte_jitter * Normal(random));
    const auto see = [&](double size, double from, double to) {
      Transfer transfer;
      transfer.bytes = static_cast<uint64_t>(std::max(size, kHeartbeat));
      transfer.seconds =
          (link.latency_s() + to - from) * std::exp(job_.clock_jitter * Normal(random));
      transfer.sender_limited = random->Uniform() < job_.held_up;
      if (transfer.sender_limited) transfer.seconds *= 2;
      seen->push_back(transfer);
    };
    see(kHeartbeat, at_s, link.SentAt(at_s, kHeartbeat));
    double now = at_s;
    for (const double share : kBundles) {
      const double sent = link.SentAt(now, bytes * share);
      see(bytes * share, now, sent);
      now = sent;
    }
    return now + link.latency_s();
  }

  const SimulatedJob& job_;
  std::vector<SimulatedLink> up_;
  std::vector<SimulatedLink> down_;
};

double ErrorOf(const SimulatedJob& job, const Choice& choice) {
  double lost = 0;
  double all = 0;
  const auto add = [&](const Coding& coding, double weight) {
    for (size_t i = 0; i < coding.codecs.size(); ++i) {
      const double elements = weight * static_cast<double>(job.tensors[i].elements);
      lost += elements * PriceOf(coding.codecs[i])->error;
      all += elements;
    }
  };
  for (const Coding& up : choice.up) add(up, 1.0 / static_cast<double>(choice.up.size()));
  add(choice.down, 1);
  return lost / all;
}

}  // namespace

SimulatedRun Simulate(const SimulatedJob& job, std::unique_ptr<Policy> policy) {
  Clockwork clockwork(job);
  Controller controller(std::move(policy), job.tensors, {});
  SimulatedRun run;
  run.plans.push_back(controller.First());
  std::vector<size_t> held;  // By step.
  size_t plan = 0;
  double now = 0;
  for (uint64_t step = 0; now < job.seconds; ++step) {
    while (plan + 1 < run.plans.size() && run.plans[plan + 1].effective_step <= step) ++plan;
    const Choice& choice = run.plans[plan].choice;
    std::vector<double> up;
    for (const Coding& coding : choice.up) up.push_back(coding.bytes);
    const CodecTimes times = job.times ? job.times(choice.down.codecs[0]) : CodecTimes{};
    SimulatedStep done;
    std::vector<double> fits;
    done.fits = clockwork.OracleBytes(now, &fits).bytes;
    for (const double bytes : fits) done.fits += bytes;
    done.error = ErrorOf(job, choice);
    const StepMeasurements measured =
        clockwork.Step(step, now, up, choice.down.bytes, times, &done);
    if (auto next = controller.Next(measured)) {
      done.changed = true;
      run.plans.push_back(*std::move(next));
    }
    now += done.seconds;
    run.steps.push_back(std::move(done));
  }
  return run;
}

SimulatedRun RunOracle(const SimulatedJob& job) {
  Clockwork clockwork(job);
  SimulatedRun run;
  double now = 0;
  for (uint64_t step = 0; now < job.seconds; ++step) {
    std::vector<double> up;
    const double down = clockwork.OracleBytes(now, &up).bytes;
    SimulatedStep done;
    clockwork.Step(step, now, up, down, {}, &done);
    now += done.seconds;
    run.steps.push_back(std::move(done));
  }
  return run;
}

double SimulatedRun::MeanStep() const {
  double sum = 0;
  for (const SimulatedStep& step : steps) sum += step.seconds;
  return sum / static_cast<double>(steps.size());
}

double SimulatedRun::MeanBytes() const {
  double sum = 0;
  for (const SimulatedStep& step : steps) sum += step.bytes;
  return sum / static_cast<double>(steps.size());
}

int SimulatedRun::StepsToSettleAfterDrop(double at_s, double compute_s) const {
  size_t first = 0;
  while (first < steps.size() && steps[first].at_s + steps[first].seconds < at_s) ++first;
  size_t good = 0;
  for (size_t step = first; step < steps.size(); ++step) {
    good = steps[step].late <= 0.1 * compute_s ? good + 1 : 0;
    if (good == 5) return static_cast<int>(step - 4 - first);
  }
  return 1 << 20;
}

int SimulatedRun::StepsToSettleAfterRise(double at_s) const {
  size_t first = 0;
  while (first < steps.size() && steps[first].at_s < at_s) ++first;
  for (size_t step = first; step < steps.size(); ++step) {
    if (steps[step].bytes >= 0.8 * steps[step].fits) return static_cast<int>(step - first);
  }
  return 1 << 20;
}

double SimulatedRun::PlansPerStep() const {
  double changes = 0;
  for (const SimulatedStep& step : steps) changes += step.changed ? 1 : 0;
  return changes / static_cast<double>(steps.size());
}

std::vector<ControlledTensor> SomeTensors() {
  std::vector<ControlledTensor> tensors;
  for (const uint64_t elements :
       {1u << 20, 4u << 20, 8u << 20, 6u << 20, 3u << 20, 1u << 20, 700000u, 300000u}) {
    tensors.push_back({.elements = elements});
  }
  for (const uint64_t elements : {512u, 1000u, 64u}) {
    tensors.push_back({.elements = elements, .compressed = false});
  }
  return tensors;
}

}  // namespace sluice::server
