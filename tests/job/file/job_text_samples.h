// SPDX-License-Identifier: Apache-2.0
// Job texts that several tests of job files share.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/file/job_file.h"

namespace sluice::job {

// The minimal job.
inline constexpr absl::string_view kLeastJob =
    "name: tiny\n"
    "model: {name: mlp}\n"
    "data: {format: synthetic}\n"
    "batch_size_per_worker: 8\n"
    "steps: 5\n"
    "optimizer: {lr: 0.1}\n";

// A job that uses every section.
inline constexpr absl::string_view kFullJob = R"(# A comment.
name: full-1.0
mode: sync
workers: 4
shards: 2
model:
  name: mlp
  hidden: [64, 32]
data: {format: idx, path: "/data/a b", limit: 1000, test_limit: 10, train_images: x.gz}
batch_size_per_worker: 64
gradient_accumulation_steps: 2
epochs: 3
optimizer: {name: sgd, lr: 0.5, momentum: 0.5, nesterov: true, weight_decay: 1e-4, clip_norm: 1}
lr_schedule: {name: cosine, warmup_steps: 10, final_lr: 0.01}
precision: fp32
device: cpu
seed: 7
compression:
  uplink: topk:1%+int4
  downlink: topk:3%+int4
  overrides:
    - {tensors: "*.bias", uplink: none}
    - tensors: fc?.weight
      uplink: ternary:0.5
      downlink: int8/noef
  min_elements: 512
  chunk_bytes: 64KiB
  bundle_bytes: 128KiB
membership: fixed
checkpoint: {dir: "/ckpt/a b", interval: 50, keep: 3, store: shards}
buffer_sync_interval: 40
output: results
baseline:
  optimizer: {lr: 0.1, momentum: 0.9}
  lr_schedule: {name: constant}
server: {lease_timeout: 5s, heartbeat_interval: 500ms, join_timeout: 2m, connect_timeout: 0.25, window_bytes: 1MB,
         max_memory: 1GiB, port: 9000, http_port: 0, rejoin_timeout: 1h}
metrics: {enabled: false}
)";

inline absl::StatusOr<JobSpec> Load(absl::string_view text, std::vector<std::string> set = {},
                                    bool dense = false) {
  return LoadJobFromText(text, "job.yaml", {"", std::move(set), dense});
}

// Loads kLeastJob with additional lines.
inline absl::StatusOr<JobSpec> LoadLeastAnd(absl::string_view lines) {
  return Load(std::string(kLeastJob) + std::string(lines));
}

// Returns the error's message. Returns an empty text, which no test expects, if there is no error.
inline std::string Problem(const absl::StatusOr<JobSpec>& job) {
  return job.ok() ? "" : std::string(job.status().message());
}

}  // namespace sluice::job
