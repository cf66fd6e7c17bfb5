// SPDX-License-Identifier: Apache-2.0
// PipelineOptions: what a Pipeline and its parts know about the job and this worker.
#pragma once

#include <cstdint>

#include "job/exchange_spec.h"
#include "protocol/exchange.h"
#include "protocol/job_defaults.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::worker {

struct PipelineOptions {
  protocol::TensorTable table;
  protocol::Layout layout;
  protocol::Sender sender;
  uint32_t world_size = 1;
  uint64_t first_step = 1;
  // If false, step 0, the parameter agreement, precedes first_step.
  bool parameters_agree = true;
  // How the job exchanges gradients. In asynchronous modes, a result updates this worker's
  // parameters to the newest version. It is empty, or contains the frames of several publications
  // or the parameters. Buffers are exchanged in step 0 only, and codecs observe nothing. With a
  // quorum, a step may close without this worker, whose late work then counts in a later step. With
  // elastic membership, results name the participants. If `exchange.control` makes plans, shard 0
  // sends plans, which change the codecs of `exchange.compression`.
  job::ExchangeSpec exchange{};
  // This worker joins a job that is ahead of it. The worker must skip every step until all shards
  // have received its part of one step in time. Until then, results may exclude the worker. In
  // asynchronous modes, a step is in time if the slowest member has not finished the next one.
  bool late_joiner = false;
  // In a rack, the number of workers of the whole job, because a result covers all racks.
  // With 0 (no rack), a result covers the ranks in its record.
  uint32_t rack_of = 0;
  // Limit on the bytes of frames sent to a shard and not yet admitted. One bundle is always
  // allowed.
  uint64_t window_bytes = protocol::defaults::kServerWindowBytes;
  // Bytes of frames of earlier steps, kept until Release to resend to a restarted shard. The oldest
  // steps are evicted first. 0 keeps none.
  uint64_t replay_bytes = 0;
};

}  // namespace sluice::worker
