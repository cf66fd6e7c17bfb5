// JobSpec: a job file as the programs use it: read, defaulted and checked (job/file). Plain types,
// so that layers with LibTorch and pure cores can share it. docs/job-file.md explains the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "compress/chunk_config.h"
#include "compress/codec_spec.h"
#include "job/control_spec.h"
#include "job/optimizer_spec.h"
#include "job/support.h"
#include "job/training_spec.h"
#include "protocol/checkpoint/checkpoint_spec.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::job {
struct ServerSpec {
  absl::Duration lease = absl::Seconds(10);
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration stall_limit{};  // 0: none.
  absl::Duration join_timeout = absl::Seconds(60);
  absl::Duration connect_timeout = absl::Seconds(20);
  // With checkpoints: for whoever was lost to come back.
  absl::Duration wait_limit = absl::Minutes(10);
  uint64_t window_bytes = 16 << 20;
  uint64_t max_memory = uint64_t{8} << 30;
  uint16_t port = 7070;
  uint16_t http_port = 7071;
};

inline constexpr uint64_t kAverageBuffersEvery = 100;

// Workers in racks, each behind a relay (job/relays.h).
struct RelaysSpec {
  std::vector<uint32_t> workers;  // Of each relay; empty: the job has none.
  compress::CodecSpec uplink;     // From workers to their relay.

  bool enabled() const { return !workers.empty(); }
};

struct JobSpec {
  std::string name;
  std::string mode = "sync";
  uint32_t workers = 1;
  uint32_t shards = 1;
  ModelSpec model;
  DataSpec data;
  uint32_t batch_size_per_worker = 0;
  uint32_t gradient_accumulation_steps = 1;
  uint32_t epochs = 0;  // Exactly one of epochs and steps is not 0.
  uint64_t steps = 0;
  OptimizerSpec optimizer;
  LrScheduleSpec lr_schedule;
  double label_smoothing = 0;
  double ema_decay = 0;            // 0: off.
  std::string precision = "fp32";  // fp32, bf16, fp16
  std::string device = "auto";     // auto, cpu, cuda, cuda:N
  uint32_t gpus_per_worker = 1;
  std::string encode_on = "device";  // device, host
  uint64_t seed = 0;
  protocol::CompressionSpec compression;
  ControlSpec control;
  std::string membership = "fixed";
  // elastic: bounds of how many workers there are; `workers` begin.
  uint32_t min_workers = 1;
  uint32_t max_workers = 1;
  uint32_t staleness = 0;           // ssp
  bool staleness_aware_lr = false;  // async, ssp
  // local_sgd
  uint64_t sync_every = 1;
  std::string outer_optimizer = "nesterov";  // Or average.
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  // sync: a step closes without the late ones with so many workers, after `grace`; 0: never.
  uint32_t quorum = 0;
  absl::Duration grace;
  uint64_t average_buffers_every = kAverageBuffersEvery;  // Steps.
  std::string output;
  uint64_t scalars_every = 10;  // Steps; 0: no scalars.
  protocol::CheckpointSpec checkpoint;
  ServerSpec server;
  RelaysSpec relays;  // Of a whole job; the jobs that it consists of have what follows.
  // Of the job that relays are the workers of, by rank: how many contributions each may bring.
  std::vector<uint32_t> weights{};
  // Of one rack's job: the workers of the whole job, whose mean comes from above. 0: of no rack.
  uint32_t rack_of = 0;
  bool metrics_enabled = true;
  uint64_t hash = 0;  // Of the resolved file; equal for all processes of a job.
};

// The update that the shards of a job do with what workers send, on parameters that they keep;
// none: they keep none and publish means, which each worker's optimizer takes. Of workers that send
// changes of weights (SendsWeights) it is one for a gradient of the other sign.
std::optional<OptimizerSpec> ShardOptimizer(const JobSpec& spec);

// Ranks are below this number.
uint32_t RankLimit(const JobSpec& spec);

// Whether workers do steps of their own and send how far these have brought them.
bool SendsWeights(const JobSpec& spec);

// Steps of each worker from one exchange to the next: what is one step to shards and sessions.
uint64_t StepsPerExchange(const JobSpec& spec);

// Why losses in a job with checkpoints take all of it back to one, whatever is kept to repair them
// in place; empty if they do not.
std::string WhyNoReplay(const JobSpec& spec);

// Things that are allowed but unwise, each a sentence with what to do instead; e.g. a codec whose
// feedback delay does not go with the optimizer's momentum.
std::vector<std::string> JobWarnings(const JobSpec& spec);

}  // namespace sluice::job
