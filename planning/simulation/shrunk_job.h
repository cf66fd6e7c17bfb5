// SPDX-License-Identifier: Apache-2.0
// ShrunkJob: a job for the real cores of shards and workers whose bundles have one element each.
// The cores then exchange control messages with frames of a few bytes. The simulation charges the
// network and the processors for the bundles of the full job. Shards, bundles, fragments, mode,
// quorum and membership are those of the full job. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/job_spec.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"
#include "server/shard/shard.h"
#include "worker/core/pipeline_options.h"

namespace sluice::planning {

class ShrunkJob {
 public:
  // `layout` is that of the full job, and `frame_bytes` the mean size of its bundles' frames. The
  // shrunk credit windows hold as many bundles as the full ones.
  ShrunkJob(const job::JobSpec& job, const protocol::Layout& layout, double frame_bytes);

  // Worker `rank` has incarnation `rank` + 1 at the start.
  server::ShardOptions ForShard(uint32_t shard) const;
  worker::PipelineOptions ForWorker(const protocol::Sender& sender, uint64_t first_step,
                                    bool is_newcomer) const;

  // The tensor of a bundle.
  uint32_t tensor(uint32_t shard, uint32_t bundle) const { return first_tensor_[shard] + bundle; }
  // The frame of every bundle in every step.
  const std::string& frame() const { return frame_; }
  const protocol::Layout& layout() const { return layout_; }
  uint32_t ranks() const { return ranks_; }
  uint64_t job_uid() const { return 1; }
  // True if step 0, in which rank 0 sends the parameters, precedes the first step.
  bool begins_with_parameters() const { return !agree_; }

 private:
  uint64_t Shrunk(uint64_t window_bytes) const;

  job::JobSpec job_;
  const double frame_bytes_;
  const uint32_t ranks_;
  const bool agree_;
  protocol::TensorTable table_;
  protocol::Layout layout_;
  std::vector<uint32_t> first_tensor_;  // By shard.
  std::string frame_;
};

}  // namespace sluice::planning
