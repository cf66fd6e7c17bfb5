// Server: one shard as a process runs it: gRPC server, shard, agent, and on shard 0 the
// coordinator. Header without gRPC, so that programs and tests that only run one need not know it.
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
#include "job/job_spec.h"
#include "net/grpc/transport.h"
#include "protocol/stage_times.h"
#include "server/coordinator/job_report.h"
#include "server/coordinator/job_status.h"
#include "server/rpc/upper_side.h"
#include "server/shard/shard.h"
#include "server/shard/shard_stats.h"
#include "server/shard/snapshot_stats.h"

namespace sluice::server {

struct ServerOptions {
  job::JobSpec job{};
  uint32_t shard = 0;
  std::string listen{};       // host:port; port 0: any that is free.
  std::string advertise{};    // Where workers reach it; empty: as `listen`, with the port taken.
  std::string coordinator{};  // host:port of shard 0; unused by shard 0 itself.
  std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
  // Others than this host may connect without showing anything of themselves.
  bool allow_anonymous = false;
  bool reflection = false;
  // Somebody starts this process again whenever it ends: in a job with checkpoints Stop ends the
  // process and not the job, and a finished run that was not told of is no error.
  bool supervised = false;
  LogOptions log{};
  // File descriptors that this server may use; 0: as many as the process may have.
  uint64_t descriptors = 0;
  uint64_t http_connections = 0;        // Of these, for the HTTP ports of the process.
  size_t message_bytes_max = 64 << 20;  // A larger request ends its stream.
  std::string software_version{};
  // Of a rack's job (job/relays.h), needed then: what its sums go to. Not owned.
  UpperSide* upper = nullptr;
  std::string log_name{};      // Empty: "shard-N".
  uint64_t job_uid = 0;        // Random; used by shard 0.
  TraceFile* trace = nullptr;  // Not owned; null: no trace is written.
  // Of shard 0 that was started again after the end: for workers that have not heard of it.
  absl::Duration finished_patience = absl::Seconds(10);
};

class Server {
 public:
  // UNAVAILABLE: cannot listen there. INVALID_ARGUMENT: options that do not fit together. Shard 0
  // of a job with checkpoints goes on with the unfinished run that is in checkpoint.dir; with a
  // finished one, it tells those of its workers that ask, and Outcome is an error if nobody did.
  // FAILED_PRECONDITION, DATA_LOSS: it cannot, or another coordinator has the folder.
  // RESOURCE_EXHAUSTED: the job needs more file descriptors than there are.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Clock* clock);
  // Ends calls that are still open at once.
  virtual ~Server() = default;

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // What workers are told.

  // Empty while it runs; then OK (the job finished) or why it failed. On shard 0 not before workers
  // and shards know it, or had a few seconds to.
  virtual std::optional<absl::Status> Outcome() = 0;
  // Ends the job with `reason`, on all processes; then Outcome follows. In a job with checkpoints
  // it asks for a last one before and waits for it a few seconds; if it is supervised, that is all,
  // and the job waits for this shard's next process.
  virtual void Stop(absl::string_view reason) = 0;

  // Ends the job with `reason` at once.
  virtual void Fail(absl::string_view reason) = 0;

  // The next seven are of a rack. Closes bundles of the term that were handed on; those of another
  // term or step are left alone.
  virtual void Publish(uint32_t term, const std::vector<Publication>& publications) = 0;
  // As the Coordinator has them; of shard 0.
  virtual void BeginTerm(uint32_t term, uint64_t restore_step, bool parameters_agree) = 0;
  virtual void AboveLost(uint32_t term, absl::string_view cause) = 0;
  virtual void FinishAbove(uint32_t term) = 0;
  virtual void ReleaseCheckpoints(uint64_t durable_step) = 0;
  virtual bool HasCheckpoint(uint64_t step) const = 0;
  virtual std::optional<absl::Status> CheckpointOutcome(uint64_t step) const = 0;

  virtual bool ready() const = 0;  // The shard has its part of the job.
  virtual ShardStats Stats() const = 0;
  virtual double ResidualEnergy() const = 0;
  virtual protocol::StageSeconds Stages() const = 0;  // Processor time since Start.
  virtual LinkStats Links() const = 0;
  virtual std::optional<SnapshotStats> Snapshots() const = 0;  // Of jobs with checkpoints only.
  virtual std::optional<JobStatus> Status() const = 0;         // Shard 0 only.
  virtual std::optional<JobReport> Report() const = 0;         // Likewise.
};

}  // namespace sluice::server
