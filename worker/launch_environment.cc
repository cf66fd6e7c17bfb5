// SPDX-License-Identifier: Apache-2.0
#include "worker/launch_environment.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "job/relays.h"

namespace sluice::worker {
namespace {

constexpr int kThreadsMax = 1024;

// Returns nullopt, without an error, if the variable is unset or empty.
absl::StatusOr<std::optional<uint32_t>> ReadNumber(const char* name, const ReadVariable& read) {
  const char* text = read(name);
  if (text == nullptr || *text == '\0') return std::optional<uint32_t>();
  uint32_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment variable ", name, "=", text, " is not a whole number"));
  }
  return std::optional<uint32_t>(number);
}

// The group of workers that the launcher's numbers refer to, and the group's name in errors.
struct Group {
  std::string name;
  uint32_t first_rank = 0;
  uint32_t workers = 0;
  uint32_t rank_limit = 0;
};

absl::StatusOr<Group> FindGroup(std::optional<uint32_t> relay, const job::JobSpec& spec) {
  if (!relay.has_value()) {
    return Group{.name = "the job", .workers = spec.workers, .rank_limit = job::RankLimit(spec)};
  }
  const size_t relays = spec.relays.workers.size();
  if (*relay >= relays) {
    return absl::InvalidArgumentError(
        absl::StrCat("relay ", *relay, " does not exist: the job has ", relays,
                     relays == 0 ? " relays, because its file has no `relays` section"
                                 : absl::StrCat(" relays, 0 to ", relays - 1)));
  }
  const uint32_t workers = spec.relays.workers[*relay];
  return Group{.name = absl::StrCat("the rack of relay ", *relay),
               .first_rank = job::FirstRankOf(spec, *relay),
               .workers = workers,
               .rank_limit = workers};
}

absl::Status CheckWorldSize(const Group& group, bool is_rack, const ReadVariable& read) {
  for (const char* name : {"WORLD_SIZE", "SLURM_NTASKS"}) {
    const absl::StatusOr<std::optional<uint32_t>> size = ReadNumber(name, read);
    if (!size.ok()) return size.status();
    if (!size->has_value() || **size == group.workers) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the launcher started ", **size, " processes (", name, "), but ", group.name, " has ",
        group.workers, " workers: start that many, or ",
        is_rack ? "change relays.workers in the job file"
                : absl::StrCat("add --set workers=", **size, " to servers and workers")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint32_t> FindRank(std::optional<uint32_t> flag, std::optional<uint32_t> relay,
                                  const job::JobSpec& spec, const ReadVariable& read) {
  const absl::StatusOr<Group> group = FindGroup(relay, spec);
  if (!group.ok()) return group.status();
  std::optional<uint32_t> rank = flag;
  for (const char* name : {"RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"}) {
    if (rank.has_value()) break;
    const absl::StatusOr<std::optional<uint32_t>> number = ReadNumber(name, read);
    if (!number.ok()) return number.status();
    rank = *number;
  }
  if (!rank.has_value()) {
    return absl::InvalidArgumentError(
        "no rank: pass --rank, or set RANK, SLURM_PROCID or JOB_COMPLETION_INDEX");
  }
  if (!flag.has_value()) {
    const absl::Status status = CheckWorldSize(*group, relay.has_value(), read);
    if (!status.ok()) return status;
  }
  if (*rank >= group->rank_limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", *rank, " is out of range: ", group->name, " has ", group->rank_limit,
                     " workers, ranks 0 to ", group->rank_limit - 1));
  }
  return group->first_rank + *rank;
}

absl::StatusOr<int> FindThreads(const std::string& flag, int cores, const ReadVariable& read) {
  if (flag.empty()) return 0;
  int threads = 0;
  if (absl::SimpleAtoi(flag, &threads) && threads >= 1 && threads <= kThreadsMax) return threads;
  if (flag != "auto") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--threads: ", flag, " is neither `auto` nor a number from 1 to ", kThreadsMax));
  }
  constexpr char kWorkersHere[] = "LOCAL_WORLD_SIZE";
  const absl::StatusOr<std::optional<uint32_t>> workers = ReadNumber(kWorkersHere, read);
  if (!workers.ok()) return workers.status();
  if (*workers == 0u) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment variable ", kWorkersHere,
                     " is 0, but this machine has at least this worker"));
  }
  const auto share = static_cast<uint32_t>(cores) / workers->value_or(1);
  return std::clamp(static_cast<int>(share), 1, kThreadsMax);
}

}  // namespace sluice::worker
