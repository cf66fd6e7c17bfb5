// SPDX-License-Identifier: Apache-2.0
// The options of a RemoteSession, and those of them that a job file sets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/trace_file.h"
#include "compress/device_encoder.h"
#include "job/job_spec.h"
#include "net/grpc/transport.h"
#include "protocol/checkpoint_spec.h"
#include "protocol/tensor_table.h"

namespace sluice::worker {

struct RemoteSessionOptions {
  std::string coordinator;  // host:port of shard 0.
  std::string job_name;
  uint64_t job_hash = 0;
  uint32_t rank = 0;
  uint32_t shards = 1;
  job::ExchangeSpec exchange{};
  // The session uses the timeouts for joining, connecting and rejoining. With checkpoints,
  // rejoin_timeout replaces connect_timeout and the lease. If `rejoining`, Join also uses it for
  // reaching the coordinator.
  job::ServerSpec server{};
  bool shards_update = false;  // Results are changes of parameters instead of means.
  // Rank 0 gives them its parameters, unless the shards have parameters.
  job::FollowersSpec followers{};
  // If it names a folder, the session saves and restores checkpoints, and losing a server ends the
  // session with a RollbackError.
  protocol::CheckpointSpec checkpoint;
  // The coding loss of every chunk is measured once in this many steps (SessionFigures::quality). 0
  // disables the measurement.
  uint64_t quality_interval = 0;
  // The device whose memory may hold submitted gradients. It encodes those gradients. Not owned. If
  // null, gradients must be in host memory.
  compress::EncodingDevice* device = nullptr;
  // Gradients are encoded on this many threads, and results applied on as many others.
  size_t encode_threads = 1;
  // Not owned; must use the same clock as `clock`. Null disables the trace.
  TraceFile* trace = nullptr;
  uint32_t rack_of = 0;  // In a rack, the number of workers of the whole job; otherwise 0.
  // For a relay: checks whether the rest of the relay's state after a step is available, apart from
  // its own part of the checkpoint. Returns DATA_LOSS if it is not; the job then uses an earlier
  // checkpoint. Join calls the function.
  std::function<absl::Status(uint64_t)> may_restore{};
  // For a relay: tells whether the rack's own checkpoint after a step is durable. Returns OK if it
  // is durable, an error if it never will be, and nullopt if this is not known yet; the session
  // then asks again. The session reports its own part after the answer. A thread of the session
  // calls the function.
  std::function<std::optional<absl::Status>(uint64_t)> rest_of_checkpoint{};
  // For a relay: called once with the reason when a joined session ends without Leave. The call may
  // come from any thread and with locks held, so the function must neither call the session nor
  // block.
  std::function<void(const absl::Status&)> on_end{};
  std::string software_version;
  std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
  uint64_t nonce = 0;      // Identifies this start of the worker. 0 selects a random value.
  bool rejoining = false;  // The coordinator may still be restarting after a rollback.
  // Pause between two tries; it doubles each time.
  absl::Duration backoff_min = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(1);
  const Clock* clock = nullptr;  // Not owned. Null selects a steady clock.
  Logger logger{"worker"};
};

// Returns the options that a job file sets; the others keep their defaults.
RemoteSessionOptions OptionsFromJob(const job::JobSpec& spec, absl::string_view coordinator,
                                    uint32_t rank);

}  // namespace sluice::worker
