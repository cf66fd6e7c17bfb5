// RemoteSession: a Session over gRPC: one Exchange stream per shard, heartbeats on a connection of
// their own, and one strand that encodes. Streams that break are opened again and what is
// unresolved is repeated. gRPC reads `grpc_proxy` and `no_grpc_proxy` from the environment itself.
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
#include "protocol/checkpoint/checkpoint_spec.h"
#include "protocol/compression_spec.h"
#include "protocol/tensor_table.h"
#include "worker/core/session.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

struct RemoteSessionOptions {
  std::string coordinator;  // host:port of shard 0.
  std::string job_name;
  uint64_t job_hash = 0;
  uint32_t rank = 0;
  uint32_t shards = 1;
  protocol::CompressionSpec compression;
  uint64_t average_buffers_every = job::kAverageBuffersEvery;  // Steps; equal for all ranks.
  bool lockstep = true;        // False: of a mode in which workers do not wait for each other.
  bool shards_update = false;  // Results are changes of parameters, not means.
  bool makes_plans = false;    // Compression changes while the job runs (control.policy).
  bool quorum = false;         // Steps close without those who are late.
  // With a folder: the session saves and restores, and losing a server ends it with a
  // RollbackError.
  protocol::CheckpointSpec checkpoint;
  bool elastic = false;  // Workers come and go.
  // Steps in which what coding loses is measured on every chunk once (SessionFigures::quality); 0:
  // never.
  uint64_t quality_every = 0;
  // Where gradients that are submitted may lie, and are encoded then; not owned. Null: nowhere but
  // in the host's memory.
  compress::EncodingDevice* device = nullptr;
  TraceFile* trace = nullptr;  // Not owned; its clock is `clock`'s. Null: no trace is written.
  uint32_t rack_of = 0;        // Of a rack: the workers of the whole job.
  // Of a relay: whether what it needs besides its own part of the checkpoint after a step is there
  // (DATA_LOSS: it is not, and the job takes one from before). Called by Join.
  std::function<absl::Status(uint64_t)> may_restore{};
  // For a relay: whether the rack's own checkpoint after a step is durable.
  // OK: it is durable. An error: it never will be. None: not known yet, and asked again. The part
  // is reported after that. From a thread of the session.
  std::function<std::optional<absl::Status>(uint64_t)> rest_of_checkpoint{};
  // Of a relay: told once why a session that had joined is over, if that is not by Leave. From any
  // thread and with locks held: it must not call back, and not wait.
  std::function<void(const absl::Status&)> on_end{};
  std::string software_version;
  std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
  uint64_t nonce = 0;  // Of this worker start; 0: drawn at random.
  absl::Duration join_timeout =
      absl::Seconds(60);  // To reach the coordinator, since workers may start first.
  absl::Duration connect_timeout =
      absl::Seconds(20);  // For a shard to be reached, at first and again.
  // With checkpoints: for others to come, and instead of connect_timeout and the lease; in Join, if
  // `rejoining`, for the coordinator to be reached.
  absl::Duration wait_limit = absl::Minutes(10);
  bool rejoining = false;  // After a rollback: the coordinator may be coming up again.
  absl::Duration backoff_min = absl::Milliseconds(50);  // Between two tries; doubles.
  absl::Duration backoff_max = absl::Seconds(1);
  const Clock* clock = nullptr;  // Not owned. nullptr: a steady clock.
  Logger logger{"worker"};
};

// What a job file says about its sessions; the rest as it stands above.
RemoteSessionOptions OptionsFromJob(const job::JobSpec& spec, absl::string_view coordinator,
                                    uint32_t rank);

// Connects nowhere before Join.
std::unique_ptr<Session> MakeRemoteSession(RemoteSessionOptions options);

}  // namespace sluice::worker
