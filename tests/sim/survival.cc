#include "tests/sim/survival.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "tests/sim/sim_data.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr uint64_t kEventsMax = 400'000;  // A run that takes more does not end.
constexpr Micros kTimeMax = 120'000'000;  // Nor does one that takes longer.
constexpr Micros kRestartMin = 2'000;     // A supervisor needs so long.
constexpr Micros kRestartSpread = 40'000;
constexpr Micros kFaultSpread = 25'000;  // From one fault to the next, and from the start.

ClusterOptions DataOptions(const SurvivalOptions& options) {
  ClusterOptions data;
  data.data_seed = options.data_seed;
  data.skip_share = options.skip_share;
  data.nan_share = 0;
  return data;
}

absl::Span<const std::byte> Bytes(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

SurvivalRun::SurvivalRun(const SurvivalOptions& options)
    : options_(options),
      data_(DataOptions(options)),
      table_(SimTable()),
      random_(options.fault_seed, 21),
      processes_(options.shards + options.ranks),
      servers_(options.shards),
      ranks_(options.ranks) {}

SurvivalReport SurvivalRun::Run() {
  for (ProcessId process = 0; process < processes_.size(); ++process) Start(process);
  ScheduleFaults();
  uint64_t handled = 0;
  while (!events_.empty() && report_.violations.empty() && !JobIsOver()) {
    if (++handled > kEventsMax || now_ > kTimeMax) {
      std::vector<std::string> where;
      for (const SimRank& rank : ranks_) {
        where.push_back(absl::StrCat(static_cast<int>(rank.state), "@", rank.step));
      }
      Violate(absl::StrCat("the job does not end: after ", handled, " events and ", now_ / 1000,
                           " ms the ranks are at ", absl::StrJoin(where, ", "), ", term ",
                           disk_.record.has_value() ? disk_.record->term : 0));
      break;
    }
    Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (event.process != kNobody) {
      const SimProcess& process = processes_[event.process];
      if (process.life != event.life) continue;
      if (process.stands_still_until > now_) {
        event.at = process.stands_still_until;
        events_.push(std::move(event));
        continue;
      }
    }
    event.what();
  }
  if (report_.violations.empty() && (!disk_.record.has_value() || !disk_.record->finished)) {
    Violate("the job has ended, but its record does not say so");
  }
  return report_;
}

bool SurvivalRun::JobIsOver() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const SimRank& rank) { return rank.state == SimRank::State::kDone; });
}

void SurvivalRun::At(Micros delay, ProcessId process, std::function<void()> what) {
  const uint64_t life = process == kNobody ? 0 : processes_[process].life;
  events_.push({now_ + delay, ++sequence_, process, life, std::move(what)});
}

// A message in order after those before it; lost if the process has another life by then.
void SurvivalRun::ArriveAt(ProcessId process, uint64_t life, Micros* last,
                           std::function<void()> what) {
  *last = std::max(*last + 1, now_ + Delay());
  events_.push({*last, ++sequence_, process, life, [this, what = std::move(what)] {
                  ++report_.delivered;
                  what();
                }});
}

Micros SurvivalRun::Delay() {
  const Micros delay = 20 + static_cast<Micros>(random_.Below(200));
  return random_.Below(20) == 0 ? 20 * delay : delay;
}

void SurvivalRun::Trace(uint32_t kind, uint32_t a, uint64_t b, uint32_t c) {
  const uint64_t entry[] = {static_cast<uint64_t>(now_), kind, a, b, c};
  report_.trace_hash =
      ExtendCrc32c(report_.trace_hash, {reinterpret_cast<const std::byte*>(entry), sizeof(entry)});
}

void SurvivalRun::Start(ProcessId process) {
  SimProcess& at = processes_[process];
  if (at.up) return;
  at.up = true;
  ++at.life;
  Trace(1, process, at.life, 0);
  if (process < options_.shards) {
    StartServer(process);
  } else {
    BeginSession(process - options_.shards);
  }
}

void SurvivalRun::Kill(ProcessId process) {
  SimProcess& at = processes_[process];
  const bool is_worker = process >= options_.shards;
  // A worker that is done has ended by itself.
  if (is_worker && ranks_[process - options_.shards].state == SimRank::State::kDone) return;
  if (!at.up) return;
  at.up = false;
  ++at.life;
  at.stands_still_until = 0;
  Trace(2, process, at.life, 0);
  if (is_worker) {
    SimRank& rank = ranks_[process - options_.shards];
    for (uint32_t shard = 0; shard < rank.links.size(); ++shard) {
      BreakLink(process - options_.shards, shard);
    }
    const uint64_t session = rank.session;
    rank = SimRank();
    rank.session = session + 1;
    return;
  }
  SimServer& server = servers_[process];
  if (process == 0) {
    coordinator_.reset();
    tokens_.clear();
    controls_.clear();
    for (uint32_t shard = 0; shard < options_.shards; ++shard) LoseControl(shard);
  } else {
    LoseControl(process);
  }
  server = SimServer();
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    if (process < ranks_[rank].links.size()) BreakLink(rank, process);
  }
}

void SurvivalRun::KillAndRestart(ProcessId process) {
  Kill(process);
  At(kRestartMin + static_cast<Micros>(random_.Below(kRestartSpread)), kNobody,
     [this, process] { Start(process); });
}

void SurvivalRun::ScheduleFaults() {
  Micros at = 0;
  for (const Fault fault : options_.faults) {
    at += 500 + static_cast<Micros>(random_.Below(kFaultSpread));
    At(at, kNobody, [this, fault] { Strike(fault); });
  }
}

void SurvivalRun::Strike(Fault fault) {
  ++report_.faults[fault];
  Trace(3, static_cast<uint32_t>(fault), 0, 0);
  const auto some = [&](size_t count) { return static_cast<uint32_t>(random_.Below(count)); };
  const uint32_t rank = some(options_.ranks);
  switch (fault) {
    case Fault::kKillWorker:
      return KillAndRestart(WorkerProcess(rank));
    case Fault::kKillShard:
      return KillAndRestart(options_.shards > 1 ? 1 + some(options_.shards - 1) : 0);
    case Fault::kKillCoordinator:
      return KillAndRestart(0);
    case Fault::kKillTwo: {
      const ProcessId first = some(processes_.size());
      KillAndRestart(first);
      return KillAndRestart((first + 1 + some(processes_.size() - 1)) % processes_.size());
    }
    case Fault::kPowerCut:
      for (ProcessId process = 0; process < processes_.size(); ++process) KillAndRestart(process);
      return;
    case Fault::kPause:
      processes_[some(processes_.size())].stands_still_until =
          now_ + static_cast<Micros>(random_.Below(300'000));
      return;
    case Fault::kBreak: {
      const uint32_t shard = some(options_.shards);
      if (shard < ranks_[rank].links.size()) BreakLink(rank, shard);
      return;
    }
    case Fault::kMute:
      ranks_[rank].muted_until = now_ + static_cast<Micros>(random_.Below(200'000));
      return;
    case Fault::kPartition:
      return CutOff(some(processes_.size()));
    case Fault::kDamage: {
      if (disk_.manifests.empty()) return;
      auto& [step, manifest] = *disk_.manifests.rbegin();
      const CheckpointPart& part = manifest.parts[some(manifest.parts.size())];
      std::string& bytes = disk_.parts[step][part.name];
      if (bytes.empty()) return;
      bytes[some(bytes.size())] ^= 1;
      damaged_.insert({step, part.name});
      return;
    }
    case Fault::kDiskFull:
      disk_full_until_ = now_ + static_cast<Micros>(random_.Below(100'000));
      return;
  }
}

bool SurvivalRun::Reaches(ProcessId from, ProcessId to) const {
  const SimProcess& a = processes_[from];
  const SimProcess& b = processes_[to];
  return a.up && b.up && (from == to || std::max(a.cut_off_until, b.cut_off_until) <= now_);
}

void SurvivalRun::CutOff(ProcessId process) {
  processes_[process].cut_off_until = now_ + static_cast<Micros>(random_.Below(200'000));
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    for (uint32_t shard = 0; shard < ranks_[rank].links.size(); ++shard) {
      if (process == shard || process == WorkerProcess(rank)) BreakLink(rank, shard);
    }
  }
  for (uint32_t shard = 1; shard < options_.shards; ++shard) {
    if (process == 0 || process == shard) LoseControl(shard);
  }
}

CheckpointPart SurvivalRun::WritePart(uint32_t term, uint64_t step, const std::string& name,
                                      std::string bytes) {
  CheckpointPart part;
  part.term = term;
  part.step = step;
  part.name = name;
  if (disk_full()) {
    part.error = "no space is left";
    return part;
  }
  part.bytes = bytes.size();
  part.checksum = Crc32c(Bytes(bytes));
  disk_.parts[step][name] = std::move(bytes);
  return part;
}

bool SurvivalRun::IsWhole(const CheckpointManifest& manifest) const {
  return std::none_of(manifest.parts.begin(), manifest.parts.end(), [&](const auto& part) {
    return damaged_.contains({manifest.step, part.name});
  });
}

absl::StatusOr<std::string> SurvivalRun::ReadPart(uint64_t step, const std::string& name) {
  const CheckpointManifest& manifest = disk_.manifests.at(step);
  for (const CheckpointPart& part : manifest.parts) {
    if (part.name != name) continue;
    const std::string& bytes = disk_.parts.at(step).at(name);
    if (Crc32c(Bytes(bytes)) == part.checksum) return bytes;
    ++report_.damaged_refused;
    return absl::DataLossError(absl::StrCat(name, " is damaged"));
  }
  return absl::DataLossError(absl::StrCat(name, " is not in the manifest"));
}

// As a coordinator that starts finds them: it reads everything.
std::vector<CheckpointManifest> SurvivalRun::UsableCheckpoints() const {
  std::vector<CheckpointManifest> usable;
  for (const auto& [step, manifest] : disk_.manifests) {
    if (IsWhole(manifest)) usable.push_back(manifest);
  }
  return usable;
}

SurvivalReport RunSurvival(const SurvivalOptions& options) { return SurvivalRun(options).Run(); }

}  // namespace sluice
