// ShardAgent: a shard's side of ShardControl. Dials the coordinator, says hello, reports health and
// parts of checkpoints, obeys commands, and dials again when the connection breaks or the
// coordinator itself was restarted. Runs two threads of its own.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/grpc/transport.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/shard_host.h"
#include "sluice/v1/shard_control.grpc.pb.h"

namespace sluice::server {

class ShardAgent {
 public:
  struct Options {
    ShardArrival hello;       // But for its number, and what the host works for.
    std::string coordinator;  // Its address, for messages.
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();  // Likewise.
    absl::Duration heartbeat = absl::Seconds(1);
    absl::Duration lease = absl::Seconds(10);         // Without the coordinator, once the job runs.
    absl::Duration join_timeout = absl::Seconds(60);  // Until it is reached for the first time.
    // At least so long in either case: a coordinator that was lost may come back.
    absl::Duration wait_limit = absl::ZeroDuration();
    // The job may go on with another process of this shard: where this one ends by itself, workers
    // are to look for that.
    bool has_successors = false;
  };
  // How it ended.
  struct End {
    bool ended = false;
    JobPhase phase = JobPhase::kFailed;
    std::string reason;  // With kFailed.
  };

  ShardAgent(Options options, std::shared_ptr<grpc::Channel> channel, ShardHost* host,
             const Clock* clock, Logger logger);
  ~ShardAgent();

  // The shard cannot go on: the coordinator is told, which ends the job.
  void ReportFailure(absl::string_view reason);
  End end() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::ShardReport, v1::ShardCommand>;

  void Run();
  bool PatienceIsOver(const grpc::Status& status);
  // Gets this process its number, once.
  grpc::Status Enter();
  grpc::Status Attach();
  void ReadCommands(Stream* stream);
  void Talk(Stream* stream);
  void Obey(const v1::ShardCommand& command);
  // Ends the stream; the coordinator gives the command again on the next one.
  void AskAgain(const absl::Status& why);
  absl::Status Do(const v1::ShardCommand& command);
  absl::Status ObeyStart(const v1::StartJob& job);
  void Tell(const ShardHost::News& news);
  v1::ShardReport Hello() const;
  // A report of this kind is in the outbox.
  bool Waits(v1::ShardReport::ReportCase kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginTerm(uint32_t term);
  void EndWith(JobPhase phase, std::string reason);
  // Without a word of the coordinator's that the job has ended.
  void GiveUp(std::string reason);
  void SetEnd(JobPhase phase, std::string reason);
  bool ShouldStop() const;
  bool WasLetIn() const;

  const Options options_;
  const std::shared_ptr<grpc::Channel> channel_;
  ShardHost* const host_;
  const Clock* const clock_;
  const Logger logger_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<v1::ShardReport> outbox_
      ABSL_GUARDED_BY(mutex_);  // A few; acknowledgements, news, one failure.
  // The last of each in this term. Sent again on a new stream, since what was written to the one
  // before may have been lost with it; the coordinator knows repeats.
  std::optional<v1::ShardReport> named_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ShardReport> part_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ShardReport> not_reproducible_ ABSL_GUARDED_BY(mutex_);
  uint32_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: not numbered yet.
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;      // The stream's commands are being read.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;  // The coordinator has sent a command.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Context of the open call.
  absl::Time last_contact_ ABSL_GUARDED_BY(mutex_);
  // When to ask again for a command that may work later, and why it failed.
  absl::Time ask_again_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string trouble_ ABSL_GUARDED_BY(mutex_);  // As the log has it.
  End end_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::server
