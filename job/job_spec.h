// JobSpec: a job file in the form that programs use: read, completed with defaults, and checked
// (job/file). A JobSpec has only plain types, so that layers with LibTorch and pure cores can share
// it. docs/job-file.md explains the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/chunk_config.h"
#include "compress/codec_spec.h"
#include "job/control_spec.h"
#include "job/enums.h"
#include "job/modes.h"
#include "job/optimizer_spec.h"
#include "job/support.h"
#include "job/training_spec.h"
#include "protocol/checkpoint/checkpoint_spec.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::job {
struct ServerSpec {
  absl::Duration lease_timeout = absl::Seconds(10);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  absl::Duration stall_timeout{};  // 0 disables the timeout.
  absl::Duration join_timeout = absl::Seconds(60);
  absl::Duration connect_timeout = absl::Seconds(20);
  // Only in jobs with checkpoints: the time within which lost processes must return.
  absl::Duration rejoin_timeout = absl::Minutes(10);
  uint64_t window_bytes = 16 << 20;
  uint64_t max_memory = uint64_t{8} << 30;
  uint16_t port = 7070;
  uint16_t http_port = 7071;
};

// Returns the gRPC port of a shard whose command line gives no address: `port` + `shard`. The count
// skips `http_port`, so that all shards of a job can run on one host. Returns 0 (any free port) if
// `port` is 0. Fails with OUT_OF_RANGE if the result would be above 65535.
absl::StatusOr<uint16_t> DefaultGrpcPort(const ServerSpec& server, uint32_t shard);

// Settings of a job whose workers are in racks, each behind a relay (job/relays.h).
struct RelaysSpec {
  // Number of workers of each relay. Empty if the job has no relays.
  std::vector<uint32_t> workers;
  compress::CodecSpec uplink;  // Codec from workers to their relay.

  bool enabled() const { return !workers.empty(); }
};

struct JobSpec {
  std::string name;
  Mode mode = Mode::kSync;
  uint32_t workers = 1;
  uint32_t shards = 1;
  ModelSpec model;
  DataSpec data;
  uint32_t batch_size_per_worker = 0;
  uint32_t gradient_accumulation_steps = 1;
  uint32_t epochs = 0;  // Exactly one of `epochs` and `steps` is not 0.
  uint64_t steps = 0;
  OptimizerSpec optimizer;
  LrScheduleSpec lr_schedule;
  double label_smoothing = 0;
  double ema_decay = 0;  // 0 disables averaging.
  Precision precision = Precision::kFp32;
  std::string device = "auto";  // One of auto, cpu, cuda and cuda:N.
  uint32_t gpus_per_worker = 1;
  EncodeLocation encode_location = EncodeLocation::kDevice;
  uint64_t seed = 0;
  protocol::CompressionSpec compression;
  ControlSpec control;
  Membership membership = Membership::kFixed;
  // Only in mode elastic: bounds of the number of workers. The job begins with `workers`.
  uint32_t min_workers = 1;
  uint32_t max_workers = 1;
  uint32_t staleness = 0;           // Only if staleness is bounded (job/modes.h).
  bool staleness_aware_lr = false;  // Only in asynchronous modes.
  // Only with local steps.
  uint64_t local_steps = 1;
  OuterOptimizer outer_optimizer = OuterOptimizer::kNesterov;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  // Only in mode sync: a step may close without the stragglers after `quorum` workers have
  // contributed and `straggler_timeout` has passed. 0 disables this.
  uint32_t quorum = 0;
  absl::Duration straggler_timeout;
  uint64_t buffer_sync_interval = protocol::kBufferSyncInterval;  // In steps.
  std::string output;
  uint64_t log_interval = 10;  // In steps; 0 disables scalars.
  protocol::CheckpointSpec checkpoint;
  ServerSpec server;
  // Set only in the job as a whole. Its parts (job/relays.h) have the two fields below instead.
  RelaysSpec relays;
  // Only in the servers' part of a job with relays, where the relays are the workers: the maximum
  // number of contributions in each relay's sum, by rank.
  std::vector<uint32_t> weights{};
  // Only in the part for one rack: the number of workers of the whole job, because the mean from
  // the servers covers all of them. 0 in all other jobs.
  uint32_t rack_of = 0;
  bool metrics_enabled = true;
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

// Returns the number of steps that each worker takes per exchange. Shards and sessions count such
// an exchange as one step.
uint64_t StepsPerExchange(const JobSpec& spec);

// Returns the reason why this job, which has checkpoints, never repairs a loss by a replay and
// always rolls the whole job back to a checkpoint. Returns an empty string if replay is possible.
std::string WhyNoReplay(const JobSpec& spec);

// Returns warnings about settings that are allowed but unwise, each with a remedy. `file_warnings`
// come first; a later one could say, for example, that a codec's feedback delay does not suit the
// optimizer's momentum.
std::vector<std::string> JobWarnings(const JobSpec& spec);

}  // namespace sluice::job
