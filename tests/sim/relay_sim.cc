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

constexpr absl::string_view kRelaySimNames[] = {
    "kill relay",        "kill worker",   "kill shard",    "kill coordinator", "kill two",
    "power cut",         "pause relay",   "pause worker",  "pause shard",      "clock gap",
    "cut relay",         "cut worker",    "mute relay",    "mute worker",      "break above",
    "break in rack",     "break control", "two instances", "damage above",     "damage in rack",
    "lose relay's disk", "disk full"};
static_assert(std::size(kRelaySimNames) == kRelayFaults);

// Builds the racks' options as JobOfRack does.
std::vector<SurvivalOptions> RacksOf(const RelaySimOptions& options) {
  std::vector<SurvivalOptions> racks;
  uint32_t first = 0;
  for (const uint32_t workers : options.racks) {
    SurvivalOptions& rack = racks.emplace_back(options.above);
    rack.ranks = workers;
    rack.weights.clear();
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
  explicit RelaySim(const RelaySimOptions& options)
      : options_(options),
        rack_options_(RacksOf(options)),
        reference_(options_.above, rack_options_),
        world_(options.above.fault_seed),
        above_(options_.above, &world_, &reference_.above()) {
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
  uint32_t Some(size_t count) {
    return static_cast<uint32_t>(world_.chance.Choose("choice", count));
  }
  RackRun& SomeRack() { return *racks_[Some(racks_.size())]; }
  Micros Soon(uint64_t most) { return world_.now + Some(most); }

  void ScheduleFaults() {
    Micros at = 0;
    for (const RelayFault fault : options_.faults) {
      at += 500 + Some(kRelaySimFaultSpread);
      world_.At(at, nullptr, [this, fault] { Strike(fault); });
    }
    world_.faults_until = std::max(at, kRelaySimMessagesUntil);
  }
  void Strike(RelayFault fault) {
    ++report_.faults[static_cast<size_t>(fault)];
    const uint32_t relay = Some(racks_.size());
    switch (fault) {
      case RelayFault::kKillRelay:
        return above_.KillAndRestartRelay(relay);
      case RelayFault::kKillWorker:
        return racks_[relay]->StrikeWorker(Fault::kKillWorker);
      case RelayFault::kKillShard:
        return above_.StrikeAt(Fault::kKillShard);
      case RelayFault::kKillCoordinator:
        return above_.StrikeAt(Fault::kKillCoordinator);
      case RelayFault::kKillTwo:
        KillSome();
        return KillSome();
      case RelayFault::kPowerCut:
        return CutPower();
      case RelayFault::kPauseRelay:
        return above_.PauseRelay(relay, Soon(300'000));
      case RelayFault::kPauseWorker:
        return racks_[relay]->PauseWorker(Soon(300'000));
      case RelayFault::kPauseShard:
        return above_.PauseShard(Soon(300'000));
      case RelayFault::kClockGap:
        return above_.StrikeAt(Fault::kClockGap);
      case RelayFault::kCutRelay:
        return above_.CutOffRelay(relay);
      case RelayFault::kCutWorker:
        return racks_[relay]->CutOffWorkers();
      case RelayFault::kMuteRelay:
        return above_.StrikeAt(Fault::kMute);
      case RelayFault::kMuteWorker:
        return racks_[relay]->StrikeWorker(Fault::kMute);
      case RelayFault::kBreakAbove:
        return above_.StrikeAt(Fault::kBreak);
      case RelayFault::kBreakInRack:
        return racks_[relay]->StrikeWorker(Fault::kBreak);
      case RelayFault::kBreakControl:
        return above_.StrikeAt(Fault::kBreakControl);
      case RelayFault::kTwoInstances:
        return above_.StrikeAt(Fault::kTwoInstances);
      case RelayFault::kDamageAbove:
        return above_.StrikeAt(Fault::kDamage);
      case RelayFault::kDamageInRack:
        return racks_[relay]->StrikeWorker(Fault::kDamage);
      case RelayFault::kLoseRelaysDisk:
        return above_.LoseRelaysDisk(relay);
      case RelayFault::kDiskFull:
        world_.disk_full_until = Soon(100'000);
        return;
    }
  }
  void KillSome() {
    switch (Some(4)) {
      case 0:
        return SomeRack().StrikeWorker(Fault::kKillWorker);
      case 1:
        return above_.StrikeAt(Fault::kKillShard);
      case 2:
        return above_.StrikeAt(Fault::kKillCoordinator);
      default:
        return above_.KillAndRestartRelay(Some(racks_.size()));
    }
  }
  void CutPower() {
    above_.KillAndRestartShards();
    for (uint32_t relay = 0; relay < racks_.size(); ++relay) {
      above_.KillAndRestartRelay(relay);
      racks_[relay]->KillAndRestartWorkers();
    }
  }

  const RelaySimOptions options_;
  const std::vector<SurvivalOptions> rack_options_;
  const RelayReference reference_;
  SimWorld world_;
  ParentRun above_;
  std::vector<std::unique_ptr<RackRun>> racks_;
  RelaySimReport report_;
};

}  // namespace

std::string ToString(RelayFault fault) {
  return std::string(kRelaySimNames[static_cast<size_t>(fault)]);
}

RelaySimReport RunRelays(const RelaySimOptions& options) { return RelaySim(options).Run(); }

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
  above.rule.reset();
  above.control = {};
  above.faults.clear();
  above.tight_memory = false;
  above.shards = 1 + static_cast<uint32_t>(random.Below(2));
  above.steps = 20 + random.Below(40);
  // A relay cannot tell whether other racks' workers have equal parameters, so that there is always
  // a step 0.
  above.compression.uplink = *compress::ParseCodecSpec(kUp[random.Below(std::size(kUp))]);
  above.compression.downlink = *compress::ParseCodecSpec(kDown[random.Below(std::size(kDown))]);
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
    options.faults.push_back(static_cast<RelayFault>(random.Below(kRelayFaults)));
  }
  return options;
}

std::string Describe(const RelaySimOptions& options) {
  std::vector<std::string> faults;
  for (const RelayFault fault : options.faults) faults.push_back(ToString(fault));
  return absl::StrCat("racks of ", absl::StrJoin(options.racks, ", "), ", ",
                      ToString(options.uplink), " inside; above ", Describe(options.above), ": ",
                      absl::StrJoin(faults, ", "));
}

}  // namespace sluice
