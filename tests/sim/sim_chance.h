// SPDX-License-Identifier: Apache-2.0
// SimChance supplies every random draw of a simulation. With a seed, one stream serves all draws in
// the order of events. With a script, each channel has its own list and stream, so that an extra or
// missing message on one channel does not affect the others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/sim/replay_script.h"
#include "tests/sim/survival.h"

namespace sluice {

// The purpose of a draw, for example "up", a rank and a shard.
struct Channel {
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  const char* name;
  uint32_t a = kNone;
  uint32_t b = kNone;
};
std::string ToString(const Channel& channel);

class SimChance {
 public:
  explicit SimChance(uint64_t seed) : random_(seed, 21) {}

  // Call one of these before the first draw. Their arguments outlive this object.
  void Follow(const ReplayScript* script) { script_ = script; }
  void RecordInto(std::vector<std::pair<std::string, uint64_t>>* draws, ReplayScript* script) {
    recorded_draws_ = draws;
    recorded_ = script;
  }

  uint64_t Next(const Channel& channel);
  uint64_t Below(const Channel& channel, uint64_t bound);
  // Returns whether a fault strikes a message. If `may` is false, only a script can make it strike.
  bool Strikes(Fault fault, const Channel& channel, double share, bool may);
  // Returns the time of scheduled fault `index` (from 0): less than `spread` after `earliest`.
  int64_t FaultAt(size_t index, Fault fault, int64_t earliest, uint64_t spread);
  // Later choices belong to fault `index`.
  void BeginFault(size_t index) { fault_ = index; }
  uint64_t Choose(const char* name, uint64_t bound);

 private:
  static constexpr size_t kNoFault = ~size_t{0};

  uint64_t Drawn(const Channel& channel, uint64_t fresh);
  // Draws of one channel: first those that the script lists, then those of the channel's stream.
  bool Listed(const std::string& channel, uint64_t* value);
  uint64_t FromStream(const std::string& channel);

  CounterRandom random_;
  const ReplayScript* script_ = nullptr;
  ReplayScript* recorded_ = nullptr;
  std::vector<std::pair<std::string, uint64_t>>* recorded_draws_ = nullptr;
  std::map<std::string, uint64_t> drawn_;  // Number of draws by channel.
  // Number of messages that a fault might have struck.
  std::map<std::pair<Fault, std::string>, uint64_t> passed_;
  size_t fault_ = kNoFault;
  std::map<std::pair<size_t, std::string>, size_t> chosen_;  // Number of choices by fault and name.
};

}  // namespace sluice
