// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/relay_sim.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "tests/sim/relay_reference.h"
#include "tests/sim/relay_run.h"

namespace sluice {
namespace {

constexpr uint64_t kRelaySimEventsMax = 1'500'000;  // A run with more events counts as endless.
constexpr Micros kRelaySimTimeMax = 120'000'000;
constexpr Micros kRelaySimFaultSpread = 60'000;
constexpr Micros kRelaySimMessagesUntil = 60'000;

// Builds the racks' options as JobOfRack does.
std::vector<SurvivalOptions> RacksOf(const RelaySimOptions& options) {
  std::vector<SurvivalOptions> racks;
  uint32_t first = 0;
  for (const uint32_t workers : options.racks) {
    SurvivalOptions& rack = racks.emplace_back(options.above);
    rack.ranks = workers;
    rack.weights.clear();
    if (IsAsync(options.above)) {
      rack.has_async_parent = true;
      rack.mode = job::Mode::kSync;
      rack.staleness = 0;
      rack.staleness_aware_lr = false;
      rack.control = {};
    } else if (options.above.control.makes_plans()) {
      rack.parent_plans = {.compression = options.above.compression,
                           .relays = static_cast<uint32_t>(options.racks.size())};
    }
    rack.rack_of = std::accumulate(options.racks.begin(), options.racks.end(), 0u);
    rack.first_rank = first;
    rack.compression.uplink = options.uplink;
    rack.compression.downlink = *compress::ParseCodecSpec("none");
    rack.replay_limit = 0;
    if (rack.checkpoint_interval > 0)
      rack.checkpoint_interval = std::numeric_limits<uint64_t>::max() / 2;
    first += workers;
  }
  return racks;
}

class RelaySim {
 public:
  RelaySim(const RelaySimOptions& options, SimWorld* world)
      : options_(options),
        rack_options_(RacksOf(options)),
        reference_(options_.above, rack_options_),
        world_(*world),
        above_(options_.above, world, &reference_.above()) {
    world_.report.violations = reference_.violations();
    std::vector<RackRun*> racks;
    for (uint32_t relay = 0; relay < rack_options_.size(); ++relay) {
      racks_.push_back(std::make_unique<RackRun>(rack_options_[relay], &world_,
                                                 &reference_.rack(relay), relay, &above_));
      racks.push_back(racks_.back().get());
    }
    above_.SetRacks(racks);
  }

  RelaySimReport Run() {
    above_.StartAll();
    for (const auto& rack : racks_) rack->StartAll();
    ScheduleFaults();
    while (!world_.events.empty() && world_.report.violations.empty() && !IsOver()) {
      if (world_.handled >= kRelaySimEventsMax || world_.now > kRelaySimTimeMax) {
        world_.report.violations.push_back(
            absl::StrCat("the job does not end: after ", world_.handled, " events and ",
                         world_.now / 1000, " ms it is at ", WhereAllAre()));
        break;
      }
      world_.DoNext();
    }
    if (world_.report.violations.empty()) {
      above_.CheckAtTheEnd();
      for (const auto& rack : racks_) {
        if (!rack->ended_with_the_job()) rack->CheckAtTheEnd();
      }
    }
    report_.all = world_.report;
    report_.rollbacks_above = above_.rollbacks();
    for (const auto& rack : racks_) report_.rollbacks_in_racks += rack->rollbacks();
    report_.relays_back = above_.reexecuted();
    return report_;
  }

 private:
  bool IsOver() const {
    return above_.JobIsOver() && std::all_of(racks_.begin(), racks_.end(),
                                             [](const auto& rack) { return rack->JobIsOver(); });
  }
  std::string WhereAllAre() const {
    std::string where = absl::StrCat("above: ", above_.WhereRanksAre(), above_.WhereRelaysAre());
    for (const auto& rack : racks_) absl::StrAppend(&where, "; rack: ", rack->WhereRanksAre());
    return where;
  }

  void ScheduleFaults() {
    Micros at = 0;
    for (size_t i = 0; i < options_.faults.size(); ++i) {
      const RelayStrike strike = options_.faults[i];
      at = world_.chance.FaultAt(i, strike.fault, at + 500, kRelaySimFaultSpread);
      world_.At(at, nullptr, [this, strike, i] {
        world_.chance.BeginFault(i);
        Strike(strike);
      });
    }
    world_.faults_until = std::max(at, kRelaySimMessagesUntil);
  }
  void Strike(const RelayStrike& strike) {
    const bool is_above = strike.level == RelayLevel::kParentJob;
    SurvivalRun& run = is_above ? static_cast<SurvivalRun&>(above_)
                                : *racks_[world_.chance.Choose("rack", racks_.size())];
    const uint64_t before = world_.report.faults[strike.fault];
    run.Strike(strike.fault);
    (is_above ? report_.faults_above : report_.faults_in_racks)[strike.fault] +=
        world_.report.faults[strike.fault] - before;
  }

  const RelaySimOptions options_;
  const std::vector<SurvivalOptions> rack_options_;
  const RelayReference reference_;
  SimWorld& world_;
  ParentRun above_;
  std::vector<std::unique_ptr<RackRun>> racks_;
  RelaySimReport report_;
};

}  // namespace

std::string ToString(const RelayStrike& strike) {
  return absl::StrCat(ToString(strike.fault),
                      strike.level == RelayLevel::kRack ? " in a rack" : "");
}

bool MayStrike(const RelayStrike& strike) {
  switch (strike.fault) {
    case Fault::kOtherBytes:  // RelayReference has one right outcome.
    case Fault::kNewVersion:
    case Fault::kOtherWorkers:
      return false;
    // A rack's servers are one process, the relay, and use no network between them.
    case Fault::kBreakControl:
    case Fault::kClockGap:
    case Fault::kKillShard:
    case Fault::kKillCoordinator:
    case Fault::kTwoInstances:
    // All jobs share one disk.
    case Fault::kDiskFull:
    case Fault::kDiskSlow:
    case Fault::kUnreadable:
    case Fault::kFailsAfterWrite:
    case Fault::kWriteOutlives:
    // Racks refuse operators' requests.
    case Fault::kCheckpointRequests:
      return strike.level == RelayLevel::kParentJob;
    case Fault::kHangs:       // A relay does not train.
    case Fault::kTwoWorkers:  // A relay would need a second rack.
      return strike.level == RelayLevel::kRack;
    default:
      return true;
  }
}

RelaySimReport RunRelays(const RelaySimOptions& options, SimWorld* world) {
  return RelaySim(options, world).Run();
}

RelaySimReport RunRelays(const RelaySimOptions& options) {
  SimWorld world(options.above.fault_seed);
  return RunRelays(options, &world);
}

RelayStrike SomeRelayStrike(CounterRandom* random) {
  RelayStrike strike{};
  do {
    strike.fault = kScheduledFaults[random->Below(std::size(kScheduledFaults))];
    strike.level = random->Below(2) == 0 ? RelayLevel::kParentJob : RelayLevel::kRack;
  } while (!MayStrike(strike));
  return strike;
}

RelaySimOptions RandomRelayOptions(uint64_t seed) {
  static constexpr absl::string_view kInside[] = {"none", "fp16", "bf16",    "int8",
                                                  "int4", "sign", "topk:20%"};
  static constexpr absl::string_view kUp[] = {"none",        "int8",           "topk:10%+int4",
                                              "ternary:0.5", "topk:5%",        "onebit",
                                              "eden:4",      "topk_exact:10%", "topk:5%/noef"};
  static constexpr absl::string_view kDown[] = {"none", "fp16", "int8", "topk:10%+int4"};
  RelaySimOptions options;
  CounterRandom random(seed, 31);
  SurvivalOptions& above = options.above;
  above = RandomSurvivalOptions(seed);
  above.control = {};
  above.faults.clear();
  above.tight_memory = false;
  above.parts_at_shards = false;
  above.rejoin_us = SurvivalOptions().rejoin_us;
  above.stall_us = SurvivalOptions().stall_us;
  above.shards = 1 + static_cast<uint32_t>(random.Below(2));
  // In some of these jobs there are fewer chunks than shards.
  if (CounterRandom(seed, 33).Below(24) == 0) above.shards = 8;
  above.steps = 20 + random.Below(40);
  // A relay cannot tell whether other racks' workers have equal parameters, so that there is always
  // a step 0.
  above.compression.uplink = *compress::ParseCodecSpec(kUp[random.Below(std::size(kUp))]);
  above.compression.downlink = *compress::ParseCodecSpec(kDown[random.Below(std::size(kDown))]);
  if (CounterRandom(seed, 34).Below(3) == 0) above = WithScheduleOf(seed, above);
  options.uplink = *compress::ParseCodecSpec(kInside[random.Below(std::size(kInside))]);
  // Half of the jobs have two racks of two workers.
  options.racks = {2, 2};
  if (random.Below(2) == 0) {
    options.racks.clear();
    const uint64_t racks = 1 + random.Below(3);
    for (uint64_t i = 0; i < racks; ++i) {
      options.racks.push_back(1 + static_cast<uint32_t>(random.Below(3)));
    }
  }
  above.ranks = static_cast<uint32_t>(options.racks.size());
  above.weights = options.racks;
  // Some racks then have no contribution to a bundle, and some bundles have none at all.
  if (random.Below(3) == 0) above.skip_share = 0.5;
  if (above.checkpoint_interval == 0) return options;
  const uint64_t faults = 1 + random.Below(7);
  for (uint64_t i = 0; i < faults; ++i) {
    options.faults.push_back(SomeRelayStrike(&random));
  }
  return options;
}

RelaySimOptions RandomAsyncRelayOptions(uint64_t seed) {
  static constexpr absl::string_view kUp[] = {"none",   "fp16",        "int8",  "topk:10%+int4",
                                              "eden:2", "ternary:0.5", "onebit"};
  static constexpr absl::string_view kDown[] = {"none", "fp16", "int8", "topk:10%+int4"};
  RelaySimOptions options = RandomRelayOptions(seed);
  CounterRandom random(seed, 35);
  SurvivalOptions& above = options.above;
  const SurvivalOptions async = RandomAsyncOptions(seed);
  above.mode = async.mode;
  above.compression.layout.fragments = 1;
  above.staleness = async.staleness;
  above.staleness_aware_lr = async.staleness_aware_lr;
  above.rule = async.rule;
  above.steps = async.steps;
  above.replay_limit = 0;
  above.parameters_agree = false;
  above.compression.uplink = *compress::ParseCodecSpec(kUp[random.Below(std::size(kUp))]);
  above.compression.downlink = *compress::ParseCodecSpec(kDown[random.Below(std::size(kDown))]);
  above.control = {};
  if (random.Below(3) == 0) above = WithScheduleOf(seed, above);
  return options;
}

std::string Describe(const RelaySimOptions& options) {
  std::vector<std::string> faults;
  for (const RelayStrike& strike : options.faults) faults.push_back(ToString(strike));
  return absl::StrCat("racks of ", absl::StrJoin(options.racks, ", "), ", ",
                      ToString(options.uplink), " inside; above ", Describe(options.above), ": ",
                      absl::StrJoin(faults, ", "));
}

}  // namespace sluice
