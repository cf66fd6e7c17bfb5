// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/step_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "protocol/compression_spec.h"

namespace sluice::planning {
namespace {

// The streams of several senders do not advance evenly, and a bundle's result waits for its slowest
// sender. So a part of the results travels after the contributions: kUneven x (1 - 1 / sqrt(n)) if
// n senders together fill a shard's link. The streams of a sender to s shards do not advance evenly
// either, which delays at least kUnevenBundles x (1 - 1 / s) bundles. Fitted to measurements.
constexpr double kUneven = 0.65;
constexpr double kUnevenBundles = 3;

struct Costs {
  CodecFigures up, down, relay_up;
  CodecFigures lossless;
};

absl::StatusOr<Costs> CostsOf(const Scenario& scenario, const MachineFigures& machine) {
  const absl::StatusOr<CodecFigures> up = FiguresOf(machine, scenario.up);
  if (!up.ok()) return up.status();
  const absl::StatusOr<CodecFigures> down = FiguresOf(machine, scenario.down);
  if (!down.ok()) return down.status();
  const absl::StatusOr<CodecFigures> relay_up = FiguresOf(machine, scenario.relay_up);
  if (!relay_up.ok()) return relay_up.status();
  const absl::StatusOr<CodecFigures> lossless = FiguresOf(machine, {});
  if (!lossless.ok()) return lossless.status();
  return Costs{*up, *down, *relay_up, *lossless};
}

// Processor time of one process in a stage.
struct Work {
  double elements_s = 0;  // Encoding, summing or applying; divided among `threads`.
  double tensors_s = 0;   // One thread needs this for the tensors, whatever their size.
  double messages_s = 0;  // gRPC's threads and the kernel need this.
  double threads = 1;

  double thread_s() const { return elements_s / threads + tensors_s; }
  double cpu_s() const { return elements_s + tensors_s + messages_s; }
};

// Builds the stages of an exchange.
class Exchange {
 public:
  Exchange(const Scenario& scenario, const MachineFigures& machine, const Costs& costs,
           const Traffic& traffic)
      : scenario_(scenario), machine_(machine), costs_(costs), traffic_(traffic) {
    const double bundle = protocol::UsualBundleElements(scenario.up, scenario.down);
    bundles_ = std::max(1.0, std::ceil(traffic.elements / scenario.shards / bundle));
  }

  double bundles() const { return bundles_; }
  // Bundles that a worker encodes.
  double all_bundles() const { return bundles_ * scenario_.shards; }

  // The parts of a process.
  Work Encoding() const {
    const CodecFigures& codec = scenario_.relays ? costs_.relay_up : costs_.up;
    return InWorker(codec.encode_ns, scenario_.relays ? traffic_.relay_up : traffic_.up);
  }
  Work Applying() const {
    const CodecFigures& codec = scenario_.relays ? costs_.lossless : costs_.down;
    return InWorker(codec.add_ns, scenario_.relays ? traffic_.relay_down : traffic_.down);
  }
  Work Summing() const {
    const double senders = Senders(scenario_);
    const double elements = traffic_.elements / scenario_.shards;
    return {.elements_s = 1e-9 * elements * (senders * costs_.up.add_ns + costs_.down.encode_ns),
            .messages_s = Messages(senders * (traffic_.up + traffic_.down) / scenario_.shards,
                                   senders * bundles_, machine_.shard_ns),
            .threads = double(scenario_.threads)};
  }

  // Returns the time in which the busiest link carries the bytes of an exchange in the long run. A
  // link whose bucket passes a burst at once must save up for the next one.
  double LongRunSeconds() const {
    const LinkShape& link = scenario_.link;
    const double out = traffic_.link_out_up + traffic_.link_out_down;
    const double other = std::max(
        {traffic_.link_in_up + traffic_.link_in_down, traffic_.shard_in, traffic_.shard_out});
    return std::max(out / link.up_rate(), other / link.bits_per_second) * 8 / kPayloadShare;
  }

  std::vector<Stage> Stages() const {
    std::vector<Stage> stages;
    stages.push_back(Processor({Resource::kEncoder, Resource::kMessages}, Encoding(),
                               scenario_.workers, all_bundles()));
    if (scenario_.relays) AddToRelay(&stages);
    stages.push_back(Transfer({{Resource::kLinkOut, OutSeconds(traffic_.link_out_up)},
                               {Resource::kLinkIn, InSeconds(traffic_.link_in_up)},
                               {Resource::kShardIn, InSeconds(traffic_.shard_in)}}));
    stages.push_back(Processor({Resource::kShard, Resource::kShardMessages}, Summing(),
                               scenario_.shards, bundles_));
    stages.push_back(Transfer({{Resource::kLinkOut, OutSeconds(traffic_.link_out_down)},
                               {Resource::kLinkIn, InSeconds(traffic_.link_in_down)},
                               {Resource::kShardOut, InSeconds(traffic_.shard_out)}}));
    if (scenario_.relays) AddFromRelay(&stages);
    stages.push_back(Processor({Resource::kTrainer, Resource::kMessages}, Applying(),
                               scenario_.workers, all_bundles()));
    return stages;
  }

  // The time of the results that wait for contributions of uneven senders, in an exchange whose
  // pipeline takes `whole_s`. The less of this time the links are busy, the less they delay anyone.
  double UnevenSeconds(double whole_s) const {
    if (Senders(scenario_) == 1 || whole_s <= 0) return 0;
    const double sending = OutSeconds(traffic_.link_out_up);
    const double arriving = std::max(InSeconds(traffic_.shard_in), InSeconds(traffic_.link_in_up));
    const double results =
        std::max(InSeconds(traffic_.shard_out), OutSeconds(traffic_.link_out_down));
    const double shared = arriving > sending ? kUneven * (1 - std::sqrt(sending / arriving)) : 0;
    const double bundles = kUnevenBundles * (1 - 1.0 / scenario_.shards);
    // The pipeline already includes the last bundle.
    const double part = std::min(std::max(shared, bundles / bundles_), 1 - 1 / bundles_);
    const double both_s = std::min(std::max(arriving, sending), results);
    return part * both_s * both_s / whole_s;
  }

 private:
  struct Threads {
    Resource thread;
    Resource messages;
  };

  double Messages(double bytes, double bundles, double ns_per_byte) const {
    return 1e-9 * bytes * ns_per_byte + 1e-6 * bundles * machine_.bundle_us;
  }
  // Half of a worker's time for tensors and messages belongs to each direction.
  Work InWorker(double ns_per_element, double bytes) const {
    const double tensors = scenario_.model.tensors / scenario_.local.fragments;
    return {.elements_s = 1e-9 * traffic_.elements * ns_per_element,
            .tensors_s = 0.5e-6 * tensors * machine_.tensor_us,
            .messages_s = Messages(bytes, 0.5 * all_bundles(), machine_.worker_ns),
            .threads = double(scenario_.threads)};
  }

  // On a machine of its own, a process has cores for all of its threads.
  Stage Processor(Threads threads, const Work& work, double processes, double pieces) const {
    if (scenario_.placement != Placement::kOneMachine) {
      return {.loads = {{threads.thread, work.thread_s()}, {threads.messages, work.messages_s}},
              .seconds = std::max(work.thread_s(), work.messages_s),
              .pieces = pieces};
    }
    const double cores = machine_.cores;
    return {.loads = {{Resource::kMachine, processes * work.cpu_s() / cores}},
            .seconds = processes * work.cpu_s() / std::min(cores, processes * work.threads),
            .pieces = pieces};
  }

  Stage Transfer(std::vector<Load> loads) const {
    Stage stage{.loads = std::move(loads), .pieces = bundles_};
    for (const Load& load : stage.loads) stage.seconds = std::max(stage.seconds, load.seconds);
    return stage;
  }

  double Seconds(double bytes, double rate) const {
    return std::max(0.0, bytes / kPayloadShare - scenario_.link.burst_bytes) * 8 / rate;
  }
  double OutSeconds(double bytes) const { return Seconds(bytes, scenario_.link.up_rate()); }
  double InSeconds(double bytes) const { return Seconds(bytes, scenario_.link.bits_per_second); }
  double SiteSeconds(double bytes) const {
    return bytes / kPayloadShare * 8 / scenario_.site_bits_per_second;
  }

  double PerSite() const { return static_cast<double>(scenario_.workers) / scenario_.sites; }

  void AddToRelay(std::vector<Stage>* stages) const {
    stages->push_back(Transfer({{Resource::kSiteOut, SiteSeconds(PerSite() * traffic_.relay_up)}}));
    const Work work = {.elements_s = 1e-9 * traffic_.elements *
                                     (PerSite() * costs_.relay_up.add_ns + costs_.up.encode_ns),
                       .messages_s = Messages(PerSite() * traffic_.relay_up,
                                              PerSite() * all_bundles(), machine_.shard_ns)};
    stages->push_back(Processor({Resource::kRelay, Resource::kRelayMessages}, work, scenario_.sites,
                                all_bundles()));
  }
  void AddFromRelay(std::vector<Stage>* stages) const {
    const Work work = {
        .elements_s = 1e-9 * traffic_.elements * costs_.down.add_ns,
        .messages_s = Messages(PerSite() * traffic_.relay_down, 0, machine_.shard_ns)};
    stages->push_back(Processor({Resource::kRelay, Resource::kRelayMessages}, work, scenario_.sites,
                                all_bundles()));
    stages->push_back(
        Transfer({{Resource::kSiteIn, SiteSeconds(PerSite() * traffic_.relay_down)}}));
  }

  const Scenario& scenario_;
  const MachineFigures& machine_;
  const Costs costs_;
  const Traffic& traffic_;
  double bundles_ = 1;  // Each shard has this many.
};

}  // namespace

PipelineTime TimeOf(absl::Span<const Stage> stages) {
  PipelineTime time;
  double busiest_s = -1;
  for (const Stage& with : stages) {
    for (const Load& candidate : with.loads) {
      double seconds = 0, busy = 0;
      for (const Stage& stage : stages) {
        double used = 0;
        for (const Load& load : stage.loads) {
          if (load.resource == candidate.resource) used += load.seconds;
        }
        busy += used;
        seconds += used + std::max(0.0, stage.seconds - used) / stage.pieces;
      }
      time.seconds = std::max(time.seconds, seconds);
      if (busy > busiest_s) time.busiest = candidate.resource;
      busiest_s = std::max(busiest_s, busy);
    }
  }
  return time;
}

absl::StatusOr<StepTime> StepTimeOf(const Scenario& scenario, const MachineFigures& machine) {
  const absl::StatusOr<Costs> costs = CostsOf(scenario, machine);
  if (!costs.ok()) return costs.status();
  const absl::StatusOr<Traffic> traffic = TrafficOf(scenario, machine);
  if (!traffic.ok()) return traffic.status();
  const Exchange exchange(scenario, machine, *costs, *traffic);
  std::vector<Stage> stages = exchange.Stages();
  const PipelineTime alone = TimeOf(stages);
  const double fixed = 1e-3 * machine.step_ms + 2 * scenario.link.latency_s;
  StepTime time{.exchange_s = alone.seconds + exchange.UnevenSeconds(alone.seconds) + fixed,
                .busiest = alone.busiest};
  const LocalSteps& local = scenario.local;
  const double exchanges = local.steps > 1 ? static_cast<double>(local.fragments) / local.steps : 1;
  if (local.steps > 1) {
    time.exposed_s = exchanges * std::max(0.0, time.exchange_s - local.delay * scenario.compute_s);
    time.worker_cpu_s = exchanges * (exchange.Encoding().cpu_s() + exchange.Applying().cpu_s());
    time.shard_cpu_s = exchanges * exchange.Summing().cpu_s();
  } else {
    const double backward = scenario.overlap * scenario.compute_s;
    stages.insert(stages.begin(), {.loads = {{Resource::kBackward, backward}},
                                   .seconds = backward,
                                   .pieces = exchange.bundles()});
    const PipelineTime whole = TimeOf(stages);
    time.busiest = whole.busiest;
    // The thread that computes also applies results.
    time.exposed_s = std::max(whole.seconds - backward, exchange.Applying().thread_s()) +
                     exchange.UnevenSeconds(whole.seconds) + fixed;
    time.worker_cpu_s = exchange.Encoding().cpu_s() + exchange.Applying().cpu_s();
    time.shard_cpu_s = exchange.Summing().cpu_s();
  }
  time.exposed_s =
      std::max(time.exposed_s, exchanges * exchange.LongRunSeconds() - scenario.compute_s);
  time.step_s = scenario.compute_s + time.exposed_s;
  return time;
}

}  // namespace sluice::planning
