#include "worker/launch_environment.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// An unset or empty variable is no number, which is no error.
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

absl::Status CheckWorldSize(const JobSpec& spec, const ReadVariable& read) {
  for (const char* name : {"WORLD_SIZE", "SLURM_NTASKS"}) {
    const absl::StatusOr<std::optional<uint32_t>> size = ReadNumber(name, read);
    if (!size.ok()) return size.status();
    if (size->has_value() && **size != spec.workers) {
      return absl::InvalidArgumentError(
          absl::StrCat("the launcher started ", **size, " processes (", name, "), but the job has ",
                       spec.workers, " workers: start as many, or add --set workers=", **size,
                       " to servers and workers"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint32_t> FindRank(std::optional<uint32_t> flag, const JobSpec& spec,
                                  const ReadVariable& read) {
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
    if (absl::Status status = CheckWorldSize(spec, read); !status.ok()) return status;
  }
  if (*rank >= spec.workers) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", *rank, " is out of range: the job has ",
                                                   spec.workers, " workers, ranks 0 to ",
                                                   spec.workers - 1));
  }
  return *rank;
}

}  // namespace sluice
