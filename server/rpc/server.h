// SPDX-License-Identifier: Apache-2.0
// Server: runs one shard in a process. It consists of the gRPC server, the shard, the agent, and,
// on shard 0, the coordinator. This header does not include gRPC, so that programs and tests that
// only run a server need not depend on gRPC.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/trace_file.h"
#include "follow/follower_figures.h"
#include "job/job_spec.h"
#include "net/grpc/transport.h"
#include "protocol/stage_times.h"
#include "server/coordinator/job_report.h"
#include "server/coordinator/job_status.h"
#include "server/coordinator/link_tracker.h"
#include "server/rpc/parent_job.h"
#include "server/shard/shard.h"
#include "server/shard/shard_stats.h"
#include "server/shard/snapshot_stats.h"

namespace sluice::server {

struct ServerOptions {
  job::JobSpec job{};
  uint32_t shard = 0;
  std::string listen{};       // host:port; port 0 selects a free port.
  std::string advertise{};    // Address for workers. If empty, `listen` with the selected port.
  std::string coordinator{};  // host:port of shard 0; shard 0 itself ignores it.
  std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
  // If true, clients on other hosts may connect without credentials.
  bool allow_anonymous = false;
  bool reflection = false;
  // True if a supervisor restarts this process whenever it ends. In a job with checkpoints, Stop
  // then ends only this process and not the job. If no worker asks about a finished run, that is
  // then not an error.
  bool supervised = false;
  LogOptions log{};
  // Number of file descriptors for this server; 0 uses the limit of the process.
  uint64_t descriptors = 0;
  // Descriptors that the process's HTTP ports need, included in `descriptors`.
  uint64_t http_connections = 0;
  size_t message_bytes_max = 64 << 20;  // A larger request ends its stream.
  size_t threads = 1;                   // ShardOptions::threads.
  std::string software_version{};
  // Receives the sums of a rack's job (job/relays.h). Required for a rack and not owned.
  ParentJob* upper = nullptr;
  std::string log_name{};      // If empty, "shard-N".
  uint64_t job_uid = 0;        // A random number; only shard 0 uses it.
  TraceFile* trace = nullptr;  // Not owned; null writes no trace.
  // If shard 0 is restarted after the end of the job, it waits this long for workers that do not
  // know of the end.
  absl::Duration finished_patience = absl::Seconds(10);
};

class Server {
 public:
  // Fails with UNAVAILABLE if the server cannot listen, and with INVALID_ARGUMENT if options
  // exclude each other. Shard 0 of a job with checkpoints continues the unfinished run in
  // checkpoint.dir. If that run has finished, shard 0 reports the end to workers that ask; if no
  // worker asks, Outcome is an error. Fails with FAILED_PRECONDITION or DATA_LOSS if the run cannot
  // be continued or another coordinator holds the folder. Fails with RESOURCE_EXHAUSTED if the job
  // needs more file descriptors than the limit.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Clock* clock);
  // Ends open calls at once.
  virtual ~Server() = default;

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // The address that workers receive.

  // Empty while the job runs. After that, OK if the job finished, or the error that made it fail.
  // On shard 0, the outcome is set once workers and shards know of the end, or after a few seconds.
  virtual std::optional<absl::Status> Outcome() = 0;
  // Ends the job on all processes with `reason`; Outcome follows. In a job with checkpoints, first
  // requests a last checkpoint and waits a few seconds for it. If the server is supervised, the job
  // then does not end but waits for this shard's next process.
  virtual void Stop(absl::string_view reason) = 0;

  // Ends the job with `reason` at once.
  virtual void Fail(absl::string_view reason) = 0;

  // The next seven methods are for racks. Publish closes forwarded bundles of the term. It ignores
  // publications of another term or step.
  virtual void Publish(uint32_t term, const std::vector<Publication>& publications) = 0;
  // For shard 0 only; see the Coordinator's methods of the same names.
  virtual void StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree) = 0;
  virtual void ParentLost(uint32_t term, absl::string_view cause) = 0;
  virtual void FinishParent(uint32_t term) = 0;
  virtual void ReleaseCheckpoints(uint64_t durable_step) = 0;
  virtual bool HasCheckpoint(uint64_t step) const = 0;
  virtual std::optional<absl::Status> CheckpointOutcome(uint64_t step) const = 0;

  virtual bool ready() const = 0;  // True if the shard has started its part of the job.
  virtual ShardStats Stats() const = 0;
  virtual double ResidualEnergy() const = 0;
  virtual protocol::StageSeconds Stages() const = 0;  // Processor time since Start.
  virtual LinkStats Links() const = 0;
  // Set in jobs with followers.
  virtual std::optional<follow::FollowerFigures> Followers() const = 0;
  virtual std::optional<SnapshotStats> Snapshots() const = 0;  // Set in jobs with checkpoints.
  virtual std::optional<JobStatus> Status() const = 0;         // Set on shard 0.
  virtual std::optional<JobReport> Report() const = 0;         // Set on shard 0.
};

}  // namespace sluice::server
