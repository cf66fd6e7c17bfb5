// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/job_warnings.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/checkpoint_tracker.h"

namespace sluice::server {
namespace {

// A part of a step that exceeds this share causes a warning.
constexpr double kTransferMuch = 0.5;
constexpr double kEncodeMuch = 0.3;
constexpr double kWaitMuch = 0.3;
constexpr absl::Duration kStandstill = absl::Seconds(30);
constexpr absl::Duration kLongWait = absl::Seconds(5);
constexpr absl::string_view kCheckDisk =
    "check the disk that holds checkpoint.dir on that machine: it may be slow, full, read-only or "
    "not mounted";
constexpr size_t kNamedMax = 4;  // Maximum number of workers named in one sentence.

using Kind = JobWarning::Kind;

struct Paced {
  uint32_t rank = 0;
  MemberPace pace;

  double Share(double seconds) const { return seconds / pace.split.seconds(); }
  double wait_share() const { return Share(pace.split.wait); }
};

// Returns, for example, "worker 1", "workers 1 and 3", or "workers 1, 3, 4, 7 and 9 others".
std::string Names(const char* what, std::vector<uint32_t> numbers) {
  std::string text = absl::StrCat(what, numbers.size() == 1 ? " " : "s ");
  if (numbers.size() > kNamedMax + 1) {
    const size_t others = numbers.size() - kNamedMax;
    numbers.resize(kNamedMax);
    return absl::StrCat(text, absl::StrJoin(numbers, ", "), " and ", others, " others");
  }
  const uint32_t last = numbers.back();
  numbers.pop_back();
  if (numbers.empty()) return absl::StrCat(text, last);
  return absl::StrCat(text, absl::StrJoin(numbers, ", "), " and ", last);
}

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

std::string Percents(std::vector<double> shares) {
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  if (Percent(*least) == Percent(*most)) return Percent(*most);
  return absl::StrFormat("%.0f to %.0f %%", 100 * *least, 100 * *most);
}

std::string Seconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Floor(duration, absl::Seconds(1)));
}

std::string Named(const MemberStatus& member) {
  return absl::StrCat("worker ", member.rank,
                      member.host.empty() ? "" : absl::StrCat(" (", member.host, ")"));
}

void AddSilent(const JobStatus& status, absl::Duration silence, std::vector<JobWarning>* out) {
  const auto add = [&](const std::string& who, bool lost, absl::Duration since) {
    if (!lost && since < silence) return;
    out->push_back(
        {Kind::kProblem,
         lost && since < absl::Seconds(1)
             ? absl::StrCat(who, " is lost, and the job waits for it")
             : absl::StrCat(who, " has not reported for ", Seconds(since),
                            lost ? ": it is lost, and the job waits for it" : ""),
         lost ? "restart it, unless a supervisor does; if it runs, its log says why it cannot join"
              : "check its machine, network and log; after server.lease_timeout it counts as lost",
         Runbook::kProcessLost});
  };
  for (const MemberStatus& member : status.members) {
    if (member.joined && !member.left) add(Named(member), member.lost, member.since_heartbeat);
  }
  for (const ShardStatus& shard : status.shards) {
    if (shard.address.empty()) continue;
    add(absl::StrCat("shard ", shard.shard, " (", shard.address, ")"), shard.lost,
        shard.since_report);
  }
}

// Reports failing waits at once, and other waits only when they are long.
void AddWaits(const JobStatus& status, std::vector<JobWarning>* out) {
  for (const LongWait& wait : status.waits) {
    if (wait.trouble.empty() && wait.lasts < kLongWait) continue;
    std::string text =
        absl::StrCat(wait.who, " has been waiting for ", wait.what, " for ", Seconds(wait.lasts));
    if (!wait.trouble.empty()) absl::StrAppend(&text, ", and retries: ", wait.trouble);
    out->push_back({Kind::kProblem, std::move(text), std::string(kCheckDisk),
                    status.record_unwritten ? Runbook::kRecordUnwritten : Runbook::kCheckpointOld});
  }
}

void AddAwaited(const JobStatus& status, std::vector<JobWarning>* out) {
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> shards;
  for (const MemberStatus& member : status.members) {
    if (!member.joined) ranks.push_back(member.rank);
  }
  for (const ShardStatus& shard : status.shards) {
    if (!shard.attached) shards.push_back(shard.shard);
  }
  std::vector<std::string> who;
  if (!ranks.empty()) who.push_back(Names("worker", ranks));
  if (!shards.empty()) who.push_back(Names("shard", shards));
  if (who.empty()) return;
  out->push_back({Kind::kNote,
                  absl::StrCat("the job waits for ", absl::StrJoin(who, " and "), " to join"),
                  "start what is missing; a process that runs but was refused logs the reason"});
}

void AddLoss(const JobStatus& status, std::vector<JobWarning>* out) {
  std::vector<uint32_t> ranks;
  for (const MemberStatus& member : status.members) {
    if (member.joined && !std::isfinite(member.progress.loss)) ranks.push_back(member.rank);
  }
  if (ranks.empty()) return;
  out->push_back({Kind::kProblem,
                  absl::StrCat("the loss of ", Names("worker", ranks),
                               " is not finite: training has diverged"),
                  "continue from a checkpoint before that with a lower learning rate, warm-up, or "
                  "optimizer.clip_norm",
                  Runbook::kLossNotFinite});
}

void AddSuspects(const JobStatus& status, std::vector<JobWarning>* out) {
  for (const MemberStatus& member : status.members) {
    if (!member.suspect.has_value()) continue;
    out->push_back(
        {Kind::kProblem,
         absl::StrCat("the contributions of ", Named(member),
                      member.suspect->opposes ? " point against those of the other workers"
                                              : " were far larger than those of the other workers",
                      member.suspect->counts ? ", and count all the same" : ""),
         "check that worker's data, settings and hardware; the shards' logs and "
         "sluice_contribution_norm_ratio have the figures"});
  }
}

void AddMissingCheckpoint(const JobStatus& status, std::vector<JobWarning>* out) {
  if (!status.has_checkpoints) return;
  uint64_t closed = 0;
  for (const ShardStatus& shard : status.shards) {
    closed = std::max(closed, shard.highest_closed_step);
  }
  std::string text = MissingCheckpoint(closed, status.checkpoint_step, status.checkpoint_interval);
  if (text.empty()) return;
  out->push_back({Kind::kProblem, std::move(text),
                  "find the process that cannot write its part: its log names the folder and the "
                  "error",
                  Runbook::kCheckpointOld});
}

// A part of a step, and the texts of the warning if it takes too long.
struct LongPart {
  double StepSplit::*part = nullptr;
  double much = 0;  // Share of a step.
  const char* one = "";
  const char* several = "";
  const char* action = "";
  Runbook runbook = Runbook::kNone;
};

void AddLong(const std::vector<Paced>& all, const LongPart& told, std::vector<JobWarning>* out) {
  std::vector<uint32_t> ranks;
  std::vector<double> shares;
  for (const Paced& one : all) {
    const double share = one.Share(one.pace.split.*told.part);
    if (share < told.much) continue;
    ranks.push_back(one.rank);
    shares.push_back(share);
  }
  if (ranks.empty()) return;
  const std::string who = ranks.size() > 1 && ranks.size() == all.size()
                              ? absl::StrCat("all ", ranks.size(), " workers")
                              : Names("worker", ranks);
  out->push_back({Kind::kSlow,
                  absl::StrCat(who, ranks.size() == 1 ? told.one : told.several, ": ",
                               Percents(shares), " of a step"),
                  told.action, told.runbook});
}

// What a worker does for the largest part of its step, and what would help if others wait for it.
struct MainActivity {
  const char* name;
  const char* action;
};

MainActivity MostOf(const StepSplit& split) {
  if (split.compute >= std::max(split.encode, split.transfer)) {
    return {"computing", "give that worker a faster machine, or use a quorum, ssp or async"};
  }
  if (split.encode >= split.transfer) {
    return {"encoding and decoding",
            "give that worker more processor time, or use a simpler codec"};
  }
  return {"on its link", "check the network of that worker, or use a codec that sends fewer bytes"};
}

// Reports the worker that the others wait for, or that all wait for the shards or for each other.
void AddLast(const std::vector<Paced>& all, std::vector<JobWarning>* out) {
  if (all.empty()) return;
  const auto by_wait = [](const Paced& a, const Paced& b) {
    return a.wait_share() < b.wait_share();
  };
  const auto last = std::min_element(all.begin(), all.end(), by_wait);
  std::vector<double> others;
  double sum = 0;
  for (const Paced& one : all) {
    if (one.rank == last->rank && all.size() > 1) continue;
    others.push_back(one.wait_share());
    sum += one.wait_share();
  }
  const double mean = sum / static_cast<double>(others.size());
  if (mean < kWaitMuch) return;
  const StepSplit& split = last->pace.split;
  if (all.size() > 1 && last->wait_share() < mean / 2) {
    const double busy = std::max({split.compute, split.encode, split.transfer});
    const MainActivity most = MostOf(split);
    out->push_back(
        {Kind::kSlow,
         absl::StrCat(all.size() == 2 ? "the other worker waits for worker "
                                      : "the other workers wait for worker ",
                      last->rank, ": ", Percents(others), " of a step, while that one spends ",
                      Percent(last->Share(busy)), " of it ", most.name),
         most.action, Runbook::kWaitsForOneWorker});
  } else if (last->wait_share() >= kWaitMuch) {
    out->push_back({Kind::kSlow,
                    absl::StrCat("all workers wait for the shards or for each other: ",
                                 Percents(others), " of a step"),
                    "use more shards if theirs are busy (sluice_stage_cpu_seconds_total); "
                    "otherwise the workers take turns being slow"});
  }
}

void AddSlow(const JobStatus& status, const JobHistory& history, std::vector<JobWarning>* out) {
  std::vector<Paced> all;
  for (const MemberStatus& member : status.members) {
    const std::optional<MemberPace> pace = history.Pace(member.rank);
    if (pace.has_value() && pace->split.seconds() > 0) all.push_back({member.rank, *pace});
  }
  AddLong(all,
          {.part = &StepSplit::transfer,
           .much = kTransferMuch,
           .one = " waits on its link",
           .several = " wait on their links",
           .action = "use a codec that sends fewer bytes, control.policy auto, or a faster network",
           .runbook = Runbook::kWaitsOnLink},
          out);
  AddLong(all,
          {.part = &StepSplit::encode,
           .much = kEncodeMuch,
           .one = " waits for its own encoding and decoding",
           .several = " wait for their own encoding and decoding",
           .action = "use a simpler codec, or give the process more processor time"},
          out);
  AddLast(all, out);
}

}  // namespace

absl::string_view ToString(JobWarning::Kind kind) {
  switch (kind) {
    case Kind::kProblem:
      return "problem";
    case Kind::kSlow:
      return "slow";
    case Kind::kNote:
      break;
  }
  return "note";
}

std::vector<JobWarning> WarningsOf(const JobStatus& status, const JobHistory& history,
                                   absl::Duration silence) {
  std::vector<JobWarning> out;
  if (status.phase == protocol::JobPhase::kFailed) {
    out.push_back(
        {Kind::kProblem, absl::StrCat("the job has failed: ", status.failure),
         status.checkpoint_step == 0
             ? "fix the cause and start the job again"
             : "fix the cause, and start all processes again with the same checkpoint.dir: "
               "the job continues from its newest checkpoint",
         Runbook::kJobFailed});
  }
  if (status.phase == protocol::JobPhase::kFailed || status.phase == protocol::JobPhase::kFinished)
    return out;
  AddSilent(status, silence, &out);
  AddWaits(status, &out);
  if (status.phase != protocol::JobPhase::kRunning) AddAwaited(status, &out);
  AddLoss(status, &out);
  AddSuspects(status, &out);
  AddMissingCheckpoint(status, &out);
  if (!status.checkpoint_trouble.empty()) {
    out.push_back({Kind::kProblem, status.checkpoint_trouble,
                   "if the next checkpoint fails too, read the log of the process whose part is "
                   "missing, and check its disk",
                   Runbook::kCheckpointGivenUp});
  }
  if (status.phase != protocol::JobPhase::kRunning) return out;
  const std::optional<absl::Duration> since = history.since_step();
  if (since.has_value() && *since >= kStandstill) {
    out.push_back({Kind::kProblem,
                   absl::StrCat("no worker has finished a step for ", Seconds(*since),
                                ": they compute, test, or wait for data"),
                   "the shards' logs name the worker that they wait for: read its log; after "
                   "server.stall_timeout, a worker that hangs counts as lost",
                   Runbook::kNoProgress});
  } else {
    AddSlow(status, history, &out);
  }
  if (!status.recovery_reason.empty()) {
    out.push_back({Kind::kNote, absl::StrCat("the next loss rolls the job back to its checkpoint: ",
                                             status.recovery_reason)});
  }
  if (status.relays) {
    out.push_back({Kind::kNote,
                   "each worker here is a relay for the workers of its rack, which the relay's own "
                   "status page shows"});
  }
  return out;
}

}  // namespace sluice::server
