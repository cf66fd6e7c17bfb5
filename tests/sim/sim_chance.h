// SimChance: all that a simulation draws. From a seed it is one stream, in the order of the events.
// From a script each channel has a list and a stream of its own, so that a message more or less on
// one channel moves nothing on the others.
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

// What a draw is for: "up", a rank and a shard, for example.
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

  // Before the first draw; what they point to outlives this.
  void Follow(const ReplayScript* script) { script_ = script; }
  void RecordInto(std::vector<std::pair<std::string, uint64_t>>* draws, ReplayScript* script) {
    recorded_draws_ = draws;
    recorded_ = script;
  }

  uint64_t Next(const Channel& channel);
  uint64_t Below(const Channel& channel, uint64_t bound);
  // Whether a message is struck; never, where `may` is false, unless a script says so.
  bool Strikes(Fault fault, const Channel& channel, double share, bool may);
  // When the next scheduled fault is due, from 0 on: less than `spread` after `earliest`.
  int64_t FaultAt(size_t index, Fault fault, int64_t earliest, uint64_t spread);
  // Choices are of this fault from here on.
  void BeginFault(size_t index) { fault_ = index; }
  uint64_t Choose(const char* name, uint64_t bound);

 private:
  static constexpr size_t kNoFault = ~size_t{0};

  uint64_t Drawn(const Channel& channel, uint64_t fresh);
  // Draws of one channel: those that the script lists, then those of the channel's stream.
  bool Listed(const std::string& channel, uint64_t* value);
  uint64_t FromStream(const std::string& channel);

  CounterRandom random_;
  const ReplayScript* script_ = nullptr;
  ReplayScript* recorded_ = nullptr;
  std::vector<std::pair<std::string, uint64_t>>* recorded_draws_ = nullptr;
  std::map<std::string, uint64_t> drawn_;                     // By channel: how many.
  std::map<std::pair<Fault, std::string>, uint64_t> passed_;  // Messages that a fault might strike.
  size_t fault_ = kNoFault;
  std::map<std::pair<size_t, std::string>, size_t> chosen_;  // By fault and name: how many.
};

}  // namespace sluice
