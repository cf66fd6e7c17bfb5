#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "tests/sim/survival.h"

namespace sluice {

std::string ToString(Fault fault) {
  switch (fault) {
    case Fault::kKillWorker:
      return "kill worker";
    case Fault::kKillShard:
      return "kill shard";
    case Fault::kKillCoordinator:
      return "kill coordinator";
    case Fault::kKillTwo:
      return "kill two";
    case Fault::kPowerCut:
      return "power cut";
    case Fault::kPause:
      return "pause";
    case Fault::kBreak:
      return "break";
    case Fault::kMute:
      return "mute";
    case Fault::kPartition:
      return "partition";
    case Fault::kDamage:
      return "damage";
    case Fault::kDiskFull:
      return "disk full";
  }
  return "";
}

SurvivalOptions RandomSurvivalOptions(uint64_t seed) {
  static constexpr absl::string_view kSpecs[] = {"none",
                                                 "fp16",
                                                 "int8",
                                                 "topk:5%",
                                                 "topk:10%+int4",
                                                 "ternary:0.5",
                                                 "topk:5%/dgc:0.9",
                                                 "int4/ef21",
                                                 "intsum:4",
                                                 "qsgd:4",
                                                 "sign",
                                                 "countsketch:4x"};
  static constexpr absl::string_view kDownlinks[] = {"none", "fp16", "int8", "topk:10%+int4",
                                                     "ternary:0.5"};
  CounterRandom random(seed, 22);
  SurvivalOptions options;
  options.data_seed = seed;
  options.fault_seed = seed;
  options.ranks = 1 + static_cast<uint32_t>(random.Below(4));
  options.shards = 1 + static_cast<uint32_t>(random.Below(3));
  options.steps = 8 + random.Below(20);
  options.checkpoint_every = 1 + random.Below(5);
  options.compression.uplink = *ParseCodecSpec(kSpecs[random.Below(std::size(kSpecs))]);
  options.compression.downlink = *ParseCodecSpec(kDownlinks[random.Below(std::size(kDownlinks))]);
  options.compression.min_elements = random.Below(2) == 0 ? 0 : 100;
  options.compression.layout = {.chunk_elements = 128u << random.Below(3),
                                .bundle_elements = 128u << random.Below(3)};
  options.parameters_agree = random.Below(4) != 0;
  options.skip_share = random.Below(2) == 0 ? 0.0 : 0.2;
  const uint64_t faults = 3 + random.Below(6);
  for (uint64_t i = 0; i < faults; ++i) {
    options.faults.push_back(kFaults[random.Below(std::size(kFaults))]);
  }
  return options;
}

std::string Describe(const SurvivalOptions& options) {
  std::vector<std::string> faults;
  for (const Fault fault : options.faults) faults.push_back(ToString(fault));
  return absl::StrCat(
      "data seed ", options.data_seed, ", fault seed ", options.fault_seed, ": ", options.ranks,
      " ranks, ", options.shards, " shards, ", options.steps, " steps, a checkpoint every ",
      options.checkpoint_every, ", up ", ToString(options.compression.uplink), ", down ",
      ToString(options.compression.downlink), options.parameters_agree ? "" : ", with step 0",
      ", faults: ", absl::StrJoin(faults, ", "));
}

}  // namespace sluice
