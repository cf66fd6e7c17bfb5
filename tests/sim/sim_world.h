// SPDX-License-Identifier: Apache-2.0
// SimWorld holds the time, the random draws and the event queue of the simulated jobs that run
// together: one job, or all jobs of a job with relays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/crc32c.h"
#include "tests/sim/sim_chance.h"
#include "tests/sim/survival.h"

namespace sluice {

using Micros = int64_t;

inline constexpr Micros kWriteMax = 8'000;        // The longest write of a checkpoint part.
inline constexpr Micros kSlowWriteMax = 120'000;  // The same on a slow disk: four leases.

struct SimProcess {
  // Never shortens a pause: events that wait for the later time would be overtaken.
  void StandStill(Micros until) { stands_still_until = std::max(stands_still_until, until); }

  // Returns whether the process can open files and connections.
  bool can_open(Micros now) const { return no_descriptors_until <= now; }

  bool up = false;
  uint64_t life = 0;  // Increases at each start and each end.
  Micros stands_still_until = 0;
  Micros cut_off_until = 0;
  // By process: the time until which messages to it do not arrive.
  std::map<uint32_t, Micros> cut_to;
  Micros no_descriptors_until = 0;
  Micros refused_until = 0;
  uint32_t version = 1;  // Of its program.
  std::string software_version() const { return absl::StrCat(version); }
};

inline absl::Duration Of(Micros micros) { return absl::Microseconds(micros); }

struct SimEvent {
  Micros at = 0;
  uint64_t sequence = 0;
  const SimProcess* process = nullptr;  // Null if the event belongs to no process.
  uint64_t life = 0;
  std::function<void()> what;
  bool operator<(const SimEvent& other) const {
    return std::pair(at, sequence) > std::pair(other.at, other.sequence);
  }
};

struct SimWorld {
  explicit SimWorld(uint64_t fault_seed) : chance(fault_seed) {}

  void At(Micros delay, const SimProcess* process, std::function<void()> what) {
    events.push({now + delay, ++sequence, process, process == nullptr ? 0 : process->life,
                 std::move(what)});
  }
  bool disk_is_slow() const { return now < disk_slow_until; }
  // Returns how long the write of a checkpoint part takes that begins now.
  Micros WriteTime(const Channel& channel) {
    const Micros longest = disk_is_slow() ? kSlowWriteMax : kWriteMax;
    return static_cast<Micros>(chance.Below(channel, static_cast<uint64_t>(longest)));
  }
  // Runs the next event, unless its process has ended or restarted since the event was scheduled.
  void DoNext() {
    SimEvent event = events.top();
    events.pop();
    now = event.at;
    ++handled;
    if (event.process != nullptr) {
      if (event.process->life != event.life) return;
      if (event.process->stands_still_until > now) {
        event.at = event.process->stands_still_until;
        events.push(std::move(event));
        return;
      }
    }
    event.what();
  }

  // Adds an event to the trace.
  void Trace(absl::string_view entry) {
    report.trace_hash = ExtendCrc32c(report.trace_hash, entry);
  }

  SimChance chance;
  Micros now = 0;
  uint64_t sequence = 0;
  uint64_t handled = 0;
  std::priority_queue<SimEvent> events;
  Micros disk_full_until = 0;
  Micros disk_slow_until = 0;
  Micros disk_unreadable_until = 0;
  Micros disk_fails_late_until = 0;  // Writes take effect and report an error.
  Micros writes_outlive_until = 0;   // Writes of killed processes are finished.
  Micros faults_until = 0;
  SurvivalReport report;
};

}  // namespace sluice
