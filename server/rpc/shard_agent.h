// SPDX-License-Identifier: Apache-2.0
// ShardAgent: the shard's client of the service ShardControl. It connects to the coordinator,
// introduces the shard, reports health and parts of checkpoints, and carries out commands. It
// connects again when the connection breaks or the coordinator restarts. It runs two threads.
#pragma once

#include <grpcpp/channel.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/grpc/transport.h"
#include "protocol/job_phase.h"
#include "protocol/shard_control.h"
#include "server/rpc/shard_host.h"
#include "sluice/v1/shard_control.grpc.pb.h"

namespace sluice::server {

class ShardAgent {
 public:
  struct Options {
    protocol::ShardArrival hello;  // Without the incarnation and the host's current work.
    std::string coordinator;       // The coordinator's address, for messages.
    // Only for messages.
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    absl::Duration heartbeat = absl::Seconds(1);
    absl::Duration lease = absl::Seconds(10);  // Timeout for a lost coordinator once the job runs.
    absl::Duration join_timeout = absl::Seconds(60);  // Timeout for the first contact.
    // Lower bound of both timeouts above, because a lost coordinator may return.
    absl::Duration rejoin_timeout = absl::ZeroDuration();
    // True if the job may continue with another process of this shard. If this process ends on its
    // own, workers then look for the next one.
    bool has_successors = false;
  };
  // The end of the job, if it has ended.
  struct End {
    bool ended = false;
    protocol::JobPhase phase = protocol::JobPhase::kFailed;
    std::string reason;  // Set if `phase` is kFailed.
  };

  ShardAgent(Options options, std::shared_ptr<grpc::Channel> channel, ShardHost* host,
             const Clock* clock, Logger logger);
  ~ShardAgent();

  // Reports to the coordinator that the shard cannot continue, which ends the job.
  void ReportFailure(absl::string_view reason);
  End end() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::ShardReport, v1::ShardCommand>;

  void Run();
  bool PatienceIsOver(const grpc::Status& status);
  // Requests a number for this process, only once.
  grpc::Status Enter();
  grpc::Status Attach();
  void ReadCommands(Stream* stream);
  void Talk(Stream* stream);
  void Obey(const v1::ShardCommand& command);
  // Ends the stream. The coordinator repeats the command on the next stream.
  void AskAgain(const absl::Status& why);
  absl::Status Do(const protocol::ShardCommand& command);
  void Report(const ShardHost::ShardEvent& event);
  void ReportRefused(const RankRefused& refused);
  void ReportExamined(const protocol::PartExamined& examined);
  v1::ShardReport Hello() const;
  // Returns true if a report of this kind is in the outbox.
  bool Waits(v1::ShardReport::ReportCase kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropReportsOfEarlierTerms(uint32_t term);
  void EndWith(protocol::JobPhase phase, std::string reason);
  // Ends the shard although the coordinator has not said that the job has ended.
  void GiveUp(std::string reason);
  void SetEnd(protocol::JobPhase phase, std::string reason);
  bool ShouldStop() const;
  bool WasLetIn() const;

  const Options options_;
  const std::shared_ptr<grpc::Channel> channel_;
  ShardHost* const host_;
  const Clock* const clock_;
  const Logger logger_;

  mutable Mutex mutex_;
  CondVar changed_;
  // Contains few reports: acknowledgements, events, and at most one failure.
  std::vector<v1::ShardReport> outbox_ ABSL_GUARDED_BY(mutex_);
  // The last report of each kind in this term. The agent sends them again on a new stream, because
  // reports on the previous stream may be lost. The coordinator ignores duplicates.
  std::optional<v1::ShardReport> named_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ShardReport> part_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ShardReport> not_reproducible_ ABSL_GUARDED_BY(mutex_);
  // Reports of refused ranks in this term, at most one for each rank, sent again likewise.
  std::map<uint32_t, v1::ShardReport> refused_ ABSL_GUARDED_BY(mutex_);
  uint32_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;  // 0 until the coordinator has given a number.
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;      // The stream's commands are being read.
  // The coordinator has begun to answer the stream.
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;  // The coordinator has sent a command.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Context of the open call.
  absl::Time last_contact_ ABSL_GUARDED_BY(mutex_);
  // When to connect again for a command that may succeed later.
  absl::Time ask_again_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string trouble_ ABSL_GUARDED_BY(mutex_);  // Why that command failed, as last logged.
  End end_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::server
