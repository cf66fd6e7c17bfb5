// SPDX-License-Identifier: Apache-2.0
// JobSpec: a job file in the form that programs use: read, completed with defaults, and checked
// (job/file). A JobSpec has only plain types, so that layers with LibTorch and pure cores can share
// it. docs/job-file.md explains the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec_spec.h"
#include "job/exchange_spec.h"
#include "job/followers_spec.h"
#include "job/optimizer_spec.h"
#include "job/server_spec.h"
#include "job/support.h"
#include "job/training_spec.h"
#include "protocol/checkpoint_spec.h"

namespace sluice::job {
// Settings of a job whose workers are in racks, each behind a relay (job/relays.h).
struct RelaysSpec {
  // Number of workers of each relay. Empty if the job has no relays.
  std::vector<uint32_t> workers;
  compress::CodecSpec uplink;  // Codec from workers to their relay.

  bool enabled() const { return !workers.empty(); }
};

// The place of a part of a job with relays (job/relays.h).
struct JobPart {
  // Only in the servers' part, where the relays are the workers: the maximum number of
  // contributions in each relay's sum, by rank.
  std::vector<uint32_t> weights{};
  // Only in the part for one rack: the number of workers of the whole job, because the mean from
  // the servers covers all of them. 0 in all other jobs.
  uint32_t rack_of = 0;
  // Only in the part for one rack, if the servers' part makes compression plans that the rack
  // follows.
  std::optional<ParentPlans> parent_plans{};
};

struct JobSpec {
  std::string name;
  uint32_t workers = protocol::defaults::kWorkers;
  uint32_t shards = protocol::defaults::kShards;
  // With elastic membership: bounds of the number of workers. The job begins with `workers`.
  uint32_t min_workers = 1;
  uint32_t max_workers = 1;
  uint64_t seed = 0;
  ModelSpec model;
  DataSpec data;
  TrainingSpec training;
  OptimizerSpec optimizer;
  LrScheduleSpec lr_schedule;
  ExchangeSpec exchange;
  LocalStepsSpec local;
  protocol::CheckpointSpec checkpoint;
  ServerSpec server;
  FollowersSpec followers;
  RelaysSpec relays;  // Set only in the job as a whole; its parts have `part` instead.
  JobPart part{};
  std::string output;
  uint64_t log_interval = protocol::defaults::kLogInterval;  // In steps; 0 disables scalars.
  bool metrics_enabled = protocol::defaults::kMetricsEnabled;
  uint64_t hash = 0;  // Hash of the resolved file; equal in all processes of a job.
  // Warnings about the form of the file, such as keys with old names.
  std::vector<std::string> file_warnings{};
};

// Returns the optimizer that the job's shards apply to the workers' contributions, on parameters
// that the shards keep. No value means that the shards keep no parameters: they publish means, and
// each worker's optimizer applies them. If workers send weight changes (SendsWeights), the
// optimizer treats the changes as gradients of opposite sign.
std::optional<OptimizerSpec> ShardOptimizer(const JobSpec& spec);

// Returns an upper bound for ranks: all ranks of the job are below it.
uint32_t RankLimit(const JobSpec& spec);

// Returns true if workers take steps of their own and send the resulting weight changes.
bool SendsWeights(const JobSpec& spec);

// Returns the rate that workers send for the optimizer of ShardOptimizer. `rate` is the learning
// rate of the job's own optimizer in the step.
double ShardRate(const JobSpec& spec, double rate);

// Returns true if training goes on during an exchange, or an exchange covers only a fragment or
// keeps a part of the workers' own parameters. The workers then have different parameters until the
// job ends.
bool StreamsFragments(const JobSpec& spec);

// Returns the number of steps that each worker takes between two exchanges of the same parameters.
// Shards and sessions count each exchange as one step.
uint64_t StepsPerExchange(const JobSpec& spec);

// Returns the reason why this job, which has checkpoints, never repairs a loss by a replay and
// always rolls the whole job back to a checkpoint. Returns an empty string if replay is possible.
std::string WhyNoReplay(const JobSpec& spec);

// Returns warnings about settings that are allowed but unwise, each with a remedy. `file_warnings`
// come first; a later one could say, for example, that a codec's feedback delay does not suit the
// optimizer's momentum.
std::vector<std::string> JobWarnings(const JobSpec& spec);

}  // namespace sluice::job
