// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_chance.h"

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace sluice {

std::string ToString(const Channel& channel) {
  std::string text = channel.name;
  if (channel.a != Channel::kNone) absl::StrAppend(&text, "/", channel.a);
  if (channel.b != Channel::kNone) absl::StrAppend(&text, "/", channel.b);
  return text;
}

uint64_t SimChance::Next(const Channel& channel) {
  if (script_ == nullptr) return Drawn(channel, random_.Next());
  const std::string name = ToString(channel);
  uint64_t value = 0;
  return Listed(name, &value) ? value : FromStream(name);
}

uint64_t SimChance::Below(const Channel& channel, uint64_t bound) {
  if (script_ == nullptr) return Drawn(channel, random_.Below(bound));
  const std::string name = ToString(channel);
  uint64_t value = 0;
  return Listed(name, &value) ? value % bound : CounterRandom::Scaled(FromStream(name), bound);
}

uint64_t SimChance::Drawn(const Channel& channel, uint64_t fresh) {
  if (recorded_draws_ != nullptr) recorded_draws_->emplace_back(ToString(channel), fresh);
  return fresh;
}

bool SimChance::Listed(const std::string& channel, uint64_t* value) {
  const auto listed = script_->draws.find(channel);
  if (listed == script_->draws.end()) return false;
  const uint64_t at = drawn_[channel];
  if (at >= listed->second.size()) return false;
  ++drawn_[channel];
  *value = listed->second[at];
  return true;
}

uint64_t SimChance::FromStream(const std::string& channel) {
  const uint32_t key = Crc32c({reinterpret_cast<const std::byte*>(channel.data()), channel.size()});
  return CounterRandom(script_->otherwise, 29, key).At(drawn_[channel]++);
}

bool SimChance::Strikes(Fault fault, const Channel& channel, double share, bool may) {
  if (script_ == nullptr && recorded_ == nullptr) return may && random_.Uniform() < share;
  const std::pair key(fault, ToString(channel));
  const uint64_t message = passed_[key]++;
  if (script_ != nullptr) {
    const auto struck = script_->struck.find(key);
    return struck != script_->struck.end() && struck->second.contains(message);
  }
  const bool strikes = may && random_.Uniform() < share;
  if (strikes) recorded_->struck[key].insert(message);
  return strikes;
}

int64_t SimChance::FaultAt(size_t index, Fault fault, int64_t earliest, uint64_t spread) {
  if (script_ != nullptr) return script_->faults[index].at;
  const int64_t at = earliest + static_cast<int64_t>(random_.Below(spread));
  if (recorded_ != nullptr) recorded_->faults.push_back({.at = at, .fault = fault});
  return at;
}

uint64_t SimChance::Choose(const char* name, uint64_t bound) {
  if (fault_ == kNoFault) return Below({"choice"}, bound);
  if (script_ == nullptr) {
    const uint64_t chosen = random_.Below(bound);
    if (recorded_ != nullptr) recorded_->faults[fault_].choices.emplace_back(name, chosen);
    return chosen;
  }
  size_t before = chosen_[{fault_, name}]++;
  for (const auto& [of, chosen] : script_->faults[fault_].choices) {
    if (of == name && before-- == 0) return chosen % bound;
  }
  return Below({name, static_cast<uint32_t>(fault_)}, bound);
}

}  // namespace sluice
