// LaunchEnvironment: what ssh, Slurm, torchrun and Kubernetes tell a worker about its place in the
// job.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

// Gives the value of an environment variable, or nullptr. main passes std::getenv.
using ReadVariable = std::function<const char*(const char* name)>;

// `flag` if given, else the first of RANK, SLURM_PROCID and JOB_COMPLETION_INDEX that is set. With
// `relay` that, and what the environment says of sizes, counts within this relay's rack; the result
// is the rank in the whole job.
// INVALID_ARGUMENT: none is, one is no number, the rank is not below the job's (the
// rack's) workers, WORLD_SIZE or SLURM_NTASKS (read only with a rank from the environment) is
// another number than these, or the job has no such relay.
absl::StatusOr<uint32_t> FindRank(std::optional<uint32_t> flag, std::optional<uint32_t> relay,
                                  const job::JobSpec& spec, const ReadVariable& read);

// What --threads says: 0 if it is empty, a number from 1 to 1024, or for "auto" this worker's share
// of `cores`: they are divided by LOCAL_WORLD_SIZE, the workers on this machine, where torchrun or
// a person sets it. INVALID_ARGUMENT: it is anything else, or LOCAL_WORLD_SIZE is no number above
// 0.
absl::StatusOr<int> FindThreads(const std::string& flag, int cores, const ReadVariable& read);

}  // namespace sluice::worker
