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
#include "job/support.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice {

struct ModelSpec {
  std::string name;                // mlp, simple_cnn, resnet20, resnet18, resnet50, vgg16, char_gpt
  std::vector<uint32_t> hidden{};  // mlp
  std::string stem = "auto";       // resnet18, resnet50: auto, cifar, imagenet
  bool batch_norm = false;         // vgg16
  // char_gpt
  uint32_t layers = 4;
  uint32_t heads = 4;
  uint32_t width = 128;
  double dropout = 0;
};

struct DataSpec {
  std::string format;  // idx, cifar10, cifar100, image_folder, text, or made up: synthetic,
                       // synthetic_cifar, synthetic_text.
  std::string path;    // A folder; of text the file.
  std::string train_images, train_labels, test_images, test_labels;  // idx: file names below path.
  uint32_t limit = 0;  // Training samples at most; 0: all.
  uint32_t test_limit = 0;
  std::string labels = "fine";            // cifar100: or coarse.
  std::string train_folder, test_folder;  // image_folder: below path; no test_folder: no tests.
  uint32_t image_size = 224;              // image_folder: pixels, both ways.
  std::string level = "char";             // text: or byte.
  uint32_t context = 128;                 // text: tokens.
  double validation_fraction = 0.1;       // text: its end.
  uint32_t crop_padding = 0;              // Pixels.
  bool flip = false;
  double random_resized_crop = 0;  // image_folder: least share of the area; 0: off.
  std::vector<double> mean, std;   // Of each channel; empty: measured or usual.
  uint32_t prefetch = 2;           // Batches.

  bool has_test_data() const;
};

struct OptimizerSpec {
  std::string name = "sgd";  // sgd, adam, adamw, rmsprop
  double lr = 0;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double alpha = 0.99;
  double weight_decay = 0;
  double clip_norm = 0;        // 0: off.
  double clip_value = 0;       // 0: off.
  std::string on = "workers";  // Or shards.
  // At most so much where gradients come late (job/momentum.h); none: by its table.
  std::optional<double> delayed_momentum{};
};

struct LrScheduleSpec {
  std::string name = "constant";  // constant, step, cosine, one_cycle
  uint64_t warmup_steps = 0;
  uint64_t step_size = 0;
  double gamma = 0.1;
  double final_lr = 0;
  double warmup_fraction = 0.3;
};

struct CompressionOverride {
  std::string tensors;  // Pattern with * and ?.
  std::optional<CodecSpec> uplink;
  std::optional<CodecSpec> downlink;
};

struct CompressionSpec {
  CodecSpec uplink;
  CodecSpec downlink;
  std::vector<CompressionOverride> overrides;  // The last match wins.
  // Smaller tensors are not compressed beyond fp16 unless an override names them.
  uint32_t min_elements = 1024;
  LayoutParameters layout;
  uint64_t seed = 0;  // The job's; of stochastic codecs.
};

// Job checkpoints (docs/checkpoints.md).
struct CheckpointSpec {
  std::string dir;        // Empty: the job has none.
  uint64_t every = 1000;  // Steps from one to the next.
  uint32_t keep = 2;      // Complete ones.
  // path: every process writes into `dir`, which all of them see. shards: each server has a `dir`
  // of its own, and workers send theirs to the servers.
  std::string store = "path";
  // Bytes that each worker keeps of what it sent, and each shard of what it answered, since the
  // newest complete checkpoint. Beyond it, and with 0, a loss is repaired by a rollback.
  uint64_t replay_limit = uint64_t{1} << 30;

  bool enabled() const { return !dir.empty(); }
  bool at_shards() const { return store == "shards"; }
};

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
  CodecSpec uplink;               // From workers to their relay.

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
  CompressionSpec compression;
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
  CheckpointSpec checkpoint;
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

// The codec of a tensor: of a buffer `none`, whatever `compression` says; else the last override
// that matches, else dense fp16 below min_elements where the direction's codec has fewer bits than
// that, else the direction's codec.
CodecSpec SpecForTensor(const CompressionSpec& compression, const TensorInfo& tensor,
                        Direction direction);

// By tensor: true if a codec of either direction wants its chunks to be whole rows; for
// BuildLayout.
std::vector<bool> WholeRows(const CompressionSpec& compression, const TensorTable& table);

// How the chunks of a layout are coded in one direction, by chunk id.
std::vector<ChunkConfig> ChunkConfigs(const CompressionSpec& compression, const TensorTable& table,
                                      const Layout& layout, Direction direction);

// Things that are allowed but unwise, each a sentence with what to do instead; e.g. a codec whose
// feedback delay does not go with the optimizer's momentum.
std::vector<std::string> JobWarnings(const JobSpec& spec);

}  // namespace sluice
