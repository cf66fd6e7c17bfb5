// SPDX-License-Identifier: Apache-2.0
// LaunchEnvironment: reads a worker's place in the job from flags and from the environment of ssh,
// Slurm, torchrun and Kubernetes.
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

// Returns the value of an environment variable, or nullptr. main passes std::getenv.
using ReadVariable = std::function<const char*(const char* name)>;

// Returns `flag` if given, otherwise the first of RANK, SLURM_PROCID and JOB_COMPLETION_INDEX that
// is set. With `relay`, the rank and the environment's sizes count within this relay's rack; the
// result is the rank in the whole job. Fails with INVALID_ARGUMENT if no rank is given, a value is
// not a number, or the rank is not below the number of workers of the job (or the rack). Also fails
// if WORLD_SIZE or SLURM_NTASKS (read only with a rank from the environment) differs from that
// number, or if the job has no such relay.
absl::StatusOr<uint32_t> FindRank(std::optional<uint32_t> flag, std::optional<uint32_t> relay,
                                  const job::JobSpec& spec, const ReadVariable& read);

// Returns the number of threads for --threads: 0 if it is empty, a number from 1 to 1024, or for
// "auto" this worker's share of `cores`. The share is `cores` divided by LOCAL_WORLD_SIZE, the
// number of workers on this machine, if torchrun or the user sets it. Fails with INVALID_ARGUMENT
// for any other value, or if LOCAL_WORLD_SIZE is not a number above 0.
absl::StatusOr<int> FindThreads(const std::string& flag, int cores, const ReadVariable& read);

}  // namespace sluice::worker
