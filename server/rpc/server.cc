// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
#include "net/grpc/steady_deadline.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "server/control/slowest_stream.h"
#include "server/rpc/builder_limits.h"
#include "server/rpc/checkpoint_store.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/coordinator_start.h"
#include "server/rpc/guarded_port.h"
#include "server/rpc/last_checkpoint.h"
#include "server/rpc/parameter_service.h"
#include "server/rpc/part_fetch.h"
#include "server/rpc/shard_agent.h"
#include "server/rpc/weights_receiver.h"
#include "server/rpc/weights_serving.h"
#include "server/shard/descriptor_need.h"

namespace sluice::server {
namespace {

// Limit per stream, far above the number of answers for the bundles of two steps.
constexpr size_t kAnswersMax = 1 << 16;
// Minimum time for other processes to learn of the end. They ask once per heartbeat, so the actual
// time is at least two heartbeats.
constexpr absl::Duration kEndPatience = absl::Seconds(3);
constexpr absl::Duration kCallsPatience = absl::Seconds(1);  // Timeout for open calls to end.
// Timeout for a last checkpoint when a server stops. It is shorter than the time that supervisors
// allow before they kill a process.
constexpr absl::Duration kCheckpointPatience = absl::Seconds(10);

// Returns the port in `address`, or `free` for port 0. Returns -1 if `address` is not HOST:PORT.
int PortOf(absl::string_view address, int free) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return -1;
  }
  return port == 0 ? free : port;
}

std::string WithPort(absl::string_view address, int port) {
  const size_t colon = address.rfind(':');
  return absl::StrCat(address.substr(0, colon), ":", port);
}

uint64_t RandomNonce() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string LogName(const ServerOptions& options) {
  return options.log_name.empty() ? absl::StrCat("shard-", options.shard) : options.log_name;
}

class GrpcServer final : public Server {
 public:
  // `folder` is null except on shard 0 of a job with checkpoints.
  GrpcServer(ServerOptions options, std::unique_ptr<RunFolder> folder, const Clock* clock)
      : options_(std::move(options)),
        clock_(clock),
        logger_(LogName(options_), options_.log),
        weights_(options_.job, options_.shard, AddressesOfShards(), options_.transport, clock_,
                 logger_),
        host_({.shard = options_.shard,
               .threads = options_.threads,
               .job = options_.job,
               .on_alarm = [this](const std::string& text) { Alarmed(text); },
               .on_plan =
                   [this](const protocol::CompressionPlan& plan, std::optional<PlanBytes> bytes) {
                     if (coordinator_ != nullptr) coordinator_->PlanMade(plan, std::move(bytes));
                   },
               .slowest_streams =
                   [this] {
                     return coordinator_ == nullptr ? std::vector<SlowestStream>()
                                                    : coordinator_->SlowestStreamsNow();
                   },
               .trace = options_.trace,
               .on_summed =
                   [this](std::shared_ptr<const BundleSum> sum) {
                     options_.upper->Summed(options_.shard, std::move(sum));
                   },
               .weights = weights_.source(),
               .fetch_part =
                   [this](const protocol::FormerState& state, uint64_t job_uid) {
                     return FetchPart(*options_.transport, state, job_uid);
                   }},
              clock, logger_),
        parameters_(&host_,
                    {.answers_max = kAnswersMax, .message_bytes_max = options_.message_bytes_max},
                    options_.transport) {
    weights_.OnFirstFollower([this] { host_.OfferWeights(); });
    if (options_.job.checkpoint.enabled() && options_.job.checkpoint.at_shards()) {
      store_ = std::make_unique<CheckpointStore>(
          CheckpointStore::Options{
              .shard = options_.shard,
              .dir = options_.job.checkpoint.dir,
              .on_member = [this](const std::string& peer) { port_->Admit(peer); }},
          &host_, options_.transport, logger_);
    }
    if (weights_.hub() != nullptr && !job::ShardOptimizer(options_.job).has_value()) {
      uploads_ = std::make_unique<WeightsReceiver>(
          WeightsReceiver::Options{
              .shard = options_.shard,
              .on_member = [this](const std::string& peer) { port_->Admit(peer); }},
          weights_.hub(), weights_.source(), &host_, options_.transport);
    }
    if (options_.shard == 0) {
      had_finished_ = folder != nullptr && folder->run().has_value() && folder->run()->finished;
      CoordinatorOptions coordinator = CoordinatorOptionsOf(options_, folder.get());
      coordinator_ = std::make_unique<CoordinatorHost>(std::move(coordinator), std::move(folder),
                                                       options_.upper, clock, logger_);
      coordinator_service_ =
          std::make_unique<CoordinatorService>(coordinator_.get(), options_.transport, logger_);
      control_service_ = std::make_unique<ControlService>(coordinator_.get(), options_.transport);
    }
  }
  ~GrpcServer() override;

  absl::Status Listen();

  int port() const override { return port_->port(); }
  std::string address() const override { return address_; }
  std::optional<absl::Status> Outcome() override;
  void Stop(absl::string_view reason) override;
  void Fail(absl::string_view reason) override;
  void Publish(uint32_t term, const std::vector<Publication>& publications) override {
    host_.Publish(term, publications);
  }
  void StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree) override {
    coordinator_->StartRackTerm(term, restore_step, parameters_agree);
  }
  void ParentLost(uint32_t term, absl::string_view cause) override {
    coordinator_->ParentLost(term, cause);
  }
  void FinishParent(uint32_t term) override { coordinator_->FinishParent(term); }
  void ReleaseCheckpoints(uint64_t durable_step) override {
    coordinator_->ReleaseCheckpoints(durable_step);
  }
  bool HasCheckpoint(uint64_t step) const override { return coordinator_->HasCheckpoint(step); }
  std::optional<absl::Status> CheckpointOutcome(uint64_t step) const override {
    return coordinator_->CheckpointOutcome(step);
  }
  bool ready() const override { return host_.started(); }
  ShardStats Stats() const override { return host_.Stats(); }
  double ResidualEnergy() const override { return host_.ResidualEnergy(); }
  protocol::StageSeconds Stages() const override { return host_.stages().Seconds(); }
  LinkStats Links() const override { return host_.Links(); }
  std::optional<follow::FollowerFigures> Followers() const override { return weights_.figures(); }
  std::optional<SnapshotStats> Snapshots() const override { return host_.Snapshots(); }
  std::optional<JobStatus> Status() const override {
    if (coordinator_ == nullptr) return std::nullopt;
    return coordinator_->Status();
  }
  std::optional<JobReport> Report() const override {
    if (coordinator_ == nullptr) return std::nullopt;
    return coordinator_->Report();
  }

 private:
  // Null except on shard 0.
  WeightsServing::Addresses AddressesOfShards();
  // True if another process will replace this one and the job waits for it.
  bool has_successor() const { return options_.supervised && options_.job.checkpoint.enabled(); }
  void StartAgent();
  void StopNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Alarmed(const std::string& text) {
    MutexLock lock(&mutex_);
    if (agent_ != nullptr) agent_->ReportFailure(text);
  }

  const ServerOptions options_;
  const Clock* const clock_;
  const Logger logger_;
  bool had_finished_ = false;          // The run had finished before this process started.
  std::unique_ptr<GuardedPort> port_;  // Outlives server_.
  std::string address_;
  WeightsServing weights_;
  ShardHost host_;
  std::unique_ptr<CoordinatorHost> coordinator_;  // Set only on shard 0.
  ParameterService parameters_;
  std::unique_ptr<CoordinatorService> coordinator_service_;
  std::unique_ptr<ControlService> control_service_;
  std::unique_ptr<CheckpointStore> store_;    // Set only in a job with the store `shards`.
  std::unique_ptr<WeightsReceiver> uploads_;  // Set only if workers give followers the weights.
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  std::unique_ptr<ShardAgent> agent_ ABSL_GUARDED_BY(mutex_);
  // When the end of the job, or the request to stop, was first seen.
  std::optional<absl::Time> ending_since_ ABSL_GUARDED_BY(mutex_);
  std::string stop_reason_ ABSL_GUARDED_BY(mutex_);
  // In a job with checkpoints: the last checkpoint that a stop waits for, and its deadline.
  std::shared_ptr<LastCheckpoint> last_checkpoint_ ABSL_GUARDED_BY(mutex_);
  absl::Time stop_at_ ABSL_GUARDED_BY(mutex_);
};

GrpcServer::~GrpcServer() {
  std::unique_ptr<ShardAgent> agent;
  {
    MutexLock lock(&mutex_);
    agent = std::move(agent_);
  }
  agent.reset();
  // With checkpoints, the job may continue with this shard's next process. Broken streams allow
  // that, but FENCED would end the workers.
  if (!options_.job.checkpoint.enabled()) host_.End("the server was stopped");
  if (server_ == nullptr) return;
  port_->Stop();
  server_->Shutdown(net::SteadyDeadline(kCallsPatience));
  server_->Wait();
}

WeightsServing::Addresses GrpcServer::AddressesOfShards() {
  if (options_.shard > 0) return nullptr;
  return [this] {
    std::vector<std::string> addresses;
    for (const ShardStatus& shard : coordinator_->Status().shards) {
      addresses.push_back(shard.address);
    }
    return addresses;
  };
}

absl::Status GrpcServer::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  if (options_.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  const DescriptorNeed need = NeedOf(options_.job, options_.shard, options_.http_connections);
  absl::StatusOr<std::unique_ptr<GuardedPort>> port =
      GuardedPort::Open(options_.listen, LimitsOf(need, options_.descriptors), kKeepalive, logger_);
  if (!port.ok()) return port.status();
  port_ = *std::move(port);
  grpc::ServerBuilder builder;
  port_->AddTo(&builder, options_.transport);
  builder.RegisterService(&parameters_);
  builder.RegisterService(weights_.service());
  if (store_ != nullptr) builder.RegisterService(store_.get());
  if (uploads_ != nullptr) builder.RegisterService(uploads_.get());
  if (coordinator_ != nullptr) {
    builder.RegisterService(coordinator_service_.get());
    builder.RegisterService(control_service_.get());
  }
  LimitCalls(&builder, options_.message_bytes_max);
  if (!options_.reflection) RemoveReflection(&builder);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("gRPC cannot serve ", options_.listen));
  }
  port_->Start();
  address_ = WithPort(
      options_.advertise.empty() ? options_.listen : options_.advertise,
      options_.advertise.empty() ? this->port() : PortOf(options_.advertise, this->port()));
  logger_.Info("job ", options_.job.name, ", listens on ", WithPort(options_.listen, this->port()),
               address_ == WithPort(options_.listen, this->port()) ? "" : ", known as ",
               address_ == WithPort(options_.listen, this->port()) ? "" : address_);
  for (const std::string& warning : {options_.transport->WarningFor(options_.listen),
                                     options_.transport->ListenWarning(options_.listen)}) {
    if (!warning.empty()) logger_.Warning(warning);
  }
  StartAgent();
  return absl::OkStatus();
}

void GrpcServer::StartAgent() {
  const bool here = coordinator_ != nullptr;
  ShardAgent::Options options;
  options.hello.job_name = options_.job.name;
  options.hello.job_hash = options_.job.hash;
  options.hello.shard = options_.shard;
  options.hello.address = address_;
  options.hello.nonce = RandomNonce();
  options.hello.software_version = options_.software_version;
  options.coordinator = here ? address_ : options_.coordinator;
  options.transport = options_.transport;
  options.heartbeat = options_.job.server.heartbeat_interval;
  options.lease = options_.job.server.lease_timeout;
  options.join_timeout = options_.job.server.join_timeout;
  if (options_.job.checkpoint.enabled())
    options.rejoin_timeout = options_.job.server.rejoin_timeout;
  options.has_successors = options_.job.checkpoint.enabled();
  // A separate connection is used, so that bulk data cannot delay the shard's heartbeats.
  std::shared_ptr<grpc::Channel> channel = here ? options_.transport->DialInProcess(server_.get())
                                                : options_.transport->Dial(options_.coordinator);
  MutexLock lock(&mutex_);
  agent_ =
      std::make_unique<ShardAgent>(std::move(options), std::move(channel), &host_, clock_, logger_);
}

std::optional<absl::Status> GrpcServer::Outcome() {
  MutexLock lock(&mutex_);
  const ShardAgent::End end = agent_->end();
  if (last_checkpoint_ != nullptr && !ending_since_.has_value()) {
    if (!end.ended && !last_checkpoint_->answered && clock_->Now() < stop_at_) return std::nullopt;
    StopNow();
  }
  if (!end.ended && !ending_since_.has_value()) return std::nullopt;
  if (!ending_since_.has_value()) {
    ending_since_ = clock_->Now();
    server_->GetHealthCheckService()->SetServingStatus(false);
    if (coordinator_ != nullptr && end.phase == protocol::JobPhase::kFailed)
      coordinator_->Fail(end.reason);
    const bool finished = end.ended && end.phase == protocol::JobPhase::kFinished;
    weights_.Finish(finished ? absl::OkStatus() : absl::AbortedError(end.reason));
  }
  const bool done =
      end.ended && (coordinator_ == nullptr || coordinator_->Drained()) && weights_.drained();
  const absl::Duration patience =
      std::max(had_finished_ ? options_.finished_patience : kEndPatience,
               2 * options_.job.server.heartbeat_interval);
  const bool leaving = has_successor() && !end.ended;
  if (!done && !leaving && clock_->Now() - *ending_since_ < patience) return std::nullopt;
  if (had_finished_ && !options_.supervised && !coordinator_->AnyToldEnd()) {
    return RunFolder::FinishedRun(options_.job);
  }
  if (end.ended && end.phase == protocol::JobPhase::kFinished) return absl::OkStatus();
  return absl::AbortedError(end.ended ? end.reason : stop_reason_);
}

void GrpcServer::Stop(absl::string_view reason) {
  MutexLock lock(&mutex_);
  if (ending_since_.has_value() || last_checkpoint_ != nullptr) return;
  stop_reason_ = std::string(reason);
  if (!options_.job.checkpoint.enabled()) {
    StopNow();
    return;
  }
  stop_at_ = clock_->Now() + kCheckpointPatience;
  last_checkpoint_ = std::make_shared<LastCheckpoint>(
      logger_, has_successor() ? "" : "; start the job again with --resume to continue from there");
  if (coordinator_ == nullptr) {
    RequestFrom(options_.transport->Dial(options_.coordinator), kCheckpointPatience,
                last_checkpoint_);
    return;
  }
  const CheckpointToken token = coordinator_->RequestCheckpoint(
      [last = last_checkpoint_](const absl::StatusOr<uint64_t>& step) { last->Answer(step); });
  (void)token;  // The call is never cancelled, because the coordinator ends first.
}

void GrpcServer::Fail(absl::string_view reason) {
  MutexLock lock(&mutex_);
  if (coordinator_ != nullptr) {
    coordinator_->Fail(reason);
  } else {
    agent_->ReportFailure(reason);
  }
}

void GrpcServer::StopNow() {
  ending_since_ = clock_->Now();
  server_->GetHealthCheckService()->SetServingStatus(false);
  if (has_successor()) return;
  if (coordinator_ != nullptr) {
    coordinator_->Fail(absl::StrCat("shard 0 (", address_, "): ", stop_reason_));
  } else {
    agent_->ReportFailure(stop_reason_);
  }
}

absl::Status CheckOptions(const ServerOptions& options) {
  if (options.shard >= options.job.shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", options.shard, " does not exist: the job has ", options.job.shards,
                     " shards, 0 to ", options.job.shards - 1));
  }
  if (options.shard > 0 && options.coordinator.empty()) {
    return absl::InvalidArgumentError(
        "a shard other than 0 needs the coordinator's address (that of shard 0)");
  }
  for (const std::string* address : {&options.listen, &options.advertise, &options.coordinator}) {
    const bool may_lack = address != &options.listen && address->empty();
    if (!may_lack && PortOf(*address, 1) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", *address, "\" is not HOST:PORT, such as 127.0.0.1:7070"));
    }
  }
  if (options.job.part.rack_of > 0 && options.upper == nullptr) {
    return absl::InvalidArgumentError("a rack's servers need a parent job");
  }
  const absl::Status may_listen =
      options.transport->MayListen(options.listen, options.allow_anonymous);
  if (!may_listen.ok()) return may_listen;
  return CheckDescriptors(NeedOf(options.job, options.shard, options.http_connections),
                          options.descriptors);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, const Clock* clock) {
  if (options.descriptors == 0) options.descriptors = DescriptorLimit();
  const absl::Status valid = CheckOptions(options);
  if (!valid.ok()) return valid;
  std::unique_ptr<RunFolder> folder;
  if (options.shard == 0 && options.job.checkpoint.enabled()) {
    absl::StatusOr<std::unique_ptr<RunFolder>> opened =
        RunFolder::Open(options.job, Logger(LogName(options), options.log));
    if (!opened.ok()) return opened.status();
    folder = *std::move(opened);
  }
  auto server = std::make_unique<GrpcServer>(std::move(options), std::move(folder), clock);
  const absl::Status listening = server->Listen();
  if (!listening.ok()) return listening;
  return server;
}

}  // namespace sluice::server
