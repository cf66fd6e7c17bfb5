// SPDX-License-Identifier: Apache-2.0
#include "relay/relay.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
#include "base/mutex.h"
#include "job/relays.h"
#include "relay/relay_step.h"
#include "server/shard/descriptor_need.h"
#include "worker/core/relay_session.h"
#include "worker/rpc/remote_client.h"

namespace sluice::relay {
namespace {

// Maximum number of consecutive joins that end in a rollback before a step is completed. Workers
// have the same limit.
constexpr int kFruitlessJoinsMax = 20;
constexpr size_t kHashBytes = 32;
constexpr uint64_t kConnectionsToCoordinator = 3;  // In addition to one connection to each shard.

struct SumOfShard {
  uint32_t shard = 0;
  std::shared_ptr<const server::BundleSum> sum;
};
// The parent job has ended the session with this number.
struct SessionOver {
  uint64_t session = 0;
  absl::Status why;
};
struct StopNow {};
// The relay's membership of the parent job. A copy keeps the client and its session alive.
struct Parent {
  std::shared_ptr<worker::RelayClient> client;  // Null between two sessions.
  worker::RelaySession* session = nullptr;      // Null until the client has joined.
};
// Messages between the rack's servers and the parent job, in order. The queue stays short, because
// a rack has only one open step.
using ToDo = std::variant<SumOfShard, server::AskParent, server::LeaveParent, SessionOver, StopNow>;

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

class RunningRelay final : public Relay, public server::ParentJob {
 public:
  RunningRelay(RelayOptions options, const Clock* clock)
      : options_(std::move(options)),
        parent_spec_(job::JobOfServers(options_.job)),
        rack_spec_(job::JobOfRack(options_.job, options_.relay)),
        clock_(clock),
        logger_(absl::StrCat("relay-", options_.relay), options_.log) {}
  ~RunningRelay() override;
  absl::Status StartServers();

  std::string address() const override { return servers_[0]->address(); }
  std::optional<absl::Status> Outcome() override;
  void Stop(absl::string_view reason) override { servers_[0]->Fail(reason); }
  const server::Server& rack() const override { return *servers_[0]; }

  void Summed(uint32_t shard, std::shared_ptr<const server::BundleSum> sum) override {
    Push(SumOfShard{shard, std::move(sum)});
  }
  void Asked(const server::AskParent& ask) override { Push(ask); }
  void Finished(const server::LeaveParent& leave) override { Push(leave); }

 private:
  void Push(ToDo what);
  ToDo Pop();
  // The following functions run on thread_, which connects the rack and the parent job.
  void Run();
  void JoinParent(const server::AskParent& ask);
  void HandleSum(const SumOfShard& from);
  absl::Status SubmitToParent(const SumOfShard& from);
  absl::Status FinishStep();
  absl::Status AgreeOnParameters();
  std::optional<absl::Status> RackCheckpoint(uint64_t step);
  void PublishStep(const std::function<uint32_t(uint32_t, uint32_t)>& contributions,
                   const Announcements& announced);
  void LeaveTheJob(const server::LeaveParent& leave);
  void EndSession(const absl::Status& why);
  void SetParent(Parent parent);
  Parent parent() {
    MutexLock lock(&mutex_);
    return parent_;
  }
  void EndStep();
  void ReportUp(const server::JobStatus& rack);
  void ReportToParent(const server::JobStatus& rack);

  const RelayOptions options_;
  const job::JobSpec parent_spec_;
  const job::JobSpec rack_spec_;
  const Clock* const clock_;
  const Logger logger_;

  Mutex mutex_;
  CondVar pushed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The parent job has ended and sent its reason.
  bool parent_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<ToDo> to_do_ ABSL_GUARDED_BY(mutex_);
  Parent parent_ ABSL_GUARDED_BY(mutex_);
  // Step of the last named checkpoint that was passed on to the rack's servers.
  uint64_t named_below_ ABSL_GUARDED_BY(mutex_) = 0;

  // Only thread_ uses these.
  uint32_t term_ = 0;  // Term of the rack.
  std::optional<RelayStep> step_;
  std::optional<RelayStep> ended_step_;
  bool buffers_due_ = false;
  bool step_begun_ = false;
  bool joined_before_ = false;
  uint64_t sessions_ = 0;  // Number of sessions begun so far.

  // Only the caller of Outcome uses these.
  bool told_up_ = false;
  absl::Time report_at_ = absl::InfinitePast();

  std::vector<std::unique_ptr<server::Server>> servers_;  // The rack's servers, by shard.
  std::thread thread_;
};

RunningRelay::~RunningRelay() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    to_do_.push_front(StopNow());
    pushed_.SignalAll();
  }
  if (const auto client = parent().client; client != nullptr) client->Cut();
  if (thread_.joinable()) thread_.join();
  while (!servers_.empty()) servers_.pop_back();
}

// Starts as many servers as the parent job has shards, so that both sides have the same bundles.
absl::Status RunningRelay::StartServers() {
  std::vector<server::DescriptorNeed> needs;
  for (uint32_t shard = 0; shard < rack_spec_.shards; ++shard) {
    needs.push_back(server::NeedOf(rack_spec_, shard, shard == 0 ? options_.http_connections : 0));
  }
  const absl::StatusOr<std::vector<uint64_t>> descriptors = server::ShareDescriptors(
      needs, parent_spec_.shards + kConnectionsToCoordinator, DescriptorLimit());
  if (!descriptors.ok()) return descriptors.status();
  for (uint32_t shard = 0; shard < rack_spec_.shards; ++shard) {
    const bool first = shard == 0;
    const auto beside = [&](const std::string& address) {
      return first || address.empty() ? address : absl::StrCat(HostOf(address), ":0");
    };
    absl::StatusOr<std::unique_ptr<server::Server>> server = server::Server::Start(
        {.job = rack_spec_,
         .shard = shard,
         .listen = beside(options_.listen),
         .advertise = beside(options_.advertise),
         .coordinator = first ? "" : servers_[0]->address(),
         .transport = options_.rack_transport,
         .allow_anonymous = options_.allow_anonymous,
         .reflection = options_.reflection,
         .supervised = options_.supervised,
         .log = options_.log,
         .descriptors = (*descriptors)[shard],
         .http_connections = first ? options_.http_connections : 0,
         .software_version = options_.software_version,
         .upper = this,
         .log_name = absl::StrCat("relay-", options_.relay, first ? "" : absl::StrCat("/", shard)),
         .job_uid = options_.job_uid},
        clock_);
    if (!server.ok()) return server.status();
    servers_.push_back(*std::move(server));
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void RunningRelay::Push(ToDo what) {
  MutexLock lock(&mutex_);
  to_do_.push_back(std::move(what));
  pushed_.SignalAll();
}

ToDo RunningRelay::Pop() {
  MutexLock lock(&mutex_);
  while (to_do_.empty()) pushed_.Wait(&mutex_);
  ToDo what = std::move(to_do_.front());
  to_do_.pop_front();
  return what;
}

void RunningRelay::SetParent(Parent parent) {
  std::shared_ptr<worker::RelayClient> late;  // Cut without the lock, because Cut calls Push.
  {
    MutexLock lock(&mutex_);
    if (stopping_) late = parent.client;
    std::swap(parent_, parent);
  }
  if (late != nullptr) late->Cut();
}

void RunningRelay::Run() {
  for (;;) {
    const ToDo what = Pop();
    if (std::holds_alternative<StopNow>(what)) break;
    if (const auto* ask = std::get_if<server::AskParent>(&what)) {
      JoinParent(*ask);
    } else if (const auto* sum = std::get_if<SumOfShard>(&what)) {
      HandleSum(*sum);
    } else if (const auto* leave = std::get_if<server::LeaveParent>(&what)) {
      LeaveTheJob(*leave);
    } else {
      const auto& over = std::get<SessionOver>(what);
      // Between two steps, no call that could return the error is waiting for the parent job.
      if (over.session == sessions_ && step_.has_value()) EndSession(over.why);
    }
  }
  SetParent({});
}

// Keeps the gradients of the ended step until the next step ends. Another thread may still hold the
// session for a moment, and the session reads these gradients until it is destroyed.
void RunningRelay::EndStep() {
  if (!step_.has_value()) return;
  ended_step_.emplace(*std::move(step_));
  step_.reset();
}

// Drops the earlier session. The parent job treats the new session as a restarted worker and
// decides its first step.
void RunningRelay::JoinParent(const server::AskParent& ask) {
  SetParent({});
  EndStep();
  term_ = ask.term;
  {
    MutexLock lock(&mutex_);
    named_below_ = 0;
  }
  absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(ask.table, rack_spec_.shards, rack_spec_.exchange.compression.layout,
                            protocol::WholeRows(rack_spec_.exchange.compression, ask.table));
  if (!layout.ok()) {
    servers_[0]->Fail(layout.status().message());
    return;
  }
  absl::StatusOr<worker::JoinedRelay> joined;
  for (int fruitless = 0; fruitless < kFruitlessJoinsMax; ++fruitless) {
    worker::RemoteSessionOptions options =
        worker::OptionsFromJob(parent_spec_, options_.upstream, options_.relay);
    options.software_version = options_.software_version;
    options.transport = options_.transport;
    options.clock = clock_;
    options.logger = logger_;
    options.rejoining = std::exchange(joined_before_, true);
    // In lockstep, the relay forwards results, and its workers apply them.
    options.shards_update = !parent_spec_.exchange.in_lockstep();
    options.may_restore = [this](uint64_t step) -> absl::Status {
      if (servers_[0]->HasCheckpoint(step)) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat("the rack of relay ", options_.relay, " has none in ",
                                              rack_spec_.checkpoint.dir));
    };
    options.rest_of_checkpoint = [this](uint64_t step) { return RackCheckpoint(step); };
    options.on_end = [this, session = ++sessions_](const absl::Status& why) {
      Push(SessionOver{session, why});
    };
    const std::shared_ptr<worker::RelayClient> client = worker::MakeRelayClient(std::move(options));
    SetParent({.client = client});  // The destructor can cut it while it joins.
    joined = client->JoinAsRelay(ask.table, std::string(kHashBytes, '\0'));
    if (joined.ok()) SetParent({.client = client, .session = joined->session});
    if (joined.ok() || !worker::IsRollback(joined.status())) break;
    logger_.Warning(joined.status().message(), "; joining again");
    SetParent({});
  }
  if (!joined.ok()) return EndSession(joined.status());
  const worker::JoinInfo& info = joined->info;
  step_.emplace(ask.table, *std::move(layout), info.first_step, info.parameters_agree,
                /*keeps_parameters=*/!parent_spec_.exchange.in_lockstep());
  step_begun_ = false;
  logger_.Info("joined the job at ", options_.upstream, "; begins with step ", info.first_step);
  servers_[0]->StartRackTerm(term_, info.restored_step, info.parameters_agree);
}

void RunningRelay::HandleSum(const SumOfShard& from) {
  if (from.sum->term != term_ || !step_.has_value()) return;
  absl::Status status = SubmitToParent(from);
  if (status.ok() && step_->complete())
    status = step_->step() == 0 ? AgreeOnParameters() : FinishStep();
  if (!status.ok()) EndSession(status);
}

absl::Status RunningRelay::SubmitToParent(const SumOfShard& from) {
  const std::vector<uint32_t> ready = step_->Take(from.shard, *from.sum);
  if (step_->step() == 0) return absl::OkStatus();
  const Parent parent = this->parent();
  if (!std::exchange(step_begun_, true)) buffers_due_ = parent.session->BuffersDue();
  const bool needed = step_->IsNeeded(from.shard, from.sum->bundle, buffers_due_);
  if (needed && from.sum->n > 0) parent.session->SetRate(from.sum->rate);
  absl::Status status;
  if (needed) status = parent.session->SetWeight(from.shard, from.sum->bundle, from.sum->n);
  for (const uint32_t tensor : ready) {
    if (!status.ok() || !step_->IsTensorNeeded(tensor, buffers_due_)) continue;
    status = parent.session->Submit(tensor, absl::Span<const float>(step_->values(tensor)));
  }
  return status;
}

absl::Status RunningRelay::FinishStep() {
  const Parent parent = this->parent();
  worker::RelaySession& session = *parent.session;
  const absl::StatusOr<worker::StepResult> result = session.Wait();
  if (!result.ok()) return result.status();
  for (uint32_t tensor = 0; tensor < step_->tensors(); ++tensor) {
    if (step_->is_buffer(tensor) && !result->buffers_averaged) continue;
    const absl::Span<float> to = step_->result(tensor);
    const absl::Status applied =
        step_->keeps_parameters() ? session.ApplyUpdate(tensor, to) : session.Apply(tensor, to);
    if (!applied.ok()) return applied;
  }
  if (result->checkpoint_due) {
    // The rack's own checkpoint contains everything except the session's state.
    if (const absl::Status saved = session.SaveCheckpoint("", {}); !saved.ok()) return saved;
  }
  PublishStep([&](uint32_t shard, uint32_t bundle) { return session.Contributions(shard, bundle); },
              {session.named_checkpoint(), session.AnnouncedPlan()});
  return absl::OkStatus();
}

absl::Status RunningRelay::AgreeOnParameters() {
  const absl::Status agreed = parent().session->AgreeOnParameters(step_->all_values());
  if (!agreed.ok()) return agreed;
  step_->KeepParameters();
  PublishStep([](uint32_t, uint32_t) { return 1; }, {});
  return absl::OkStatus();
}

// This relay's part of a checkpoint is complete only if the rack could roll back to the same step.
std::optional<absl::Status> RunningRelay::RackCheckpoint(uint64_t step) {
  {
    MutexLock lock(&mutex_);
    if (named_below_ < step) {
      return absl::UnavailableError(absl::StrCat("the rack of relay ", options_.relay,
                                                 " did not learn of it before it was due"));
    }
  }
  return servers_[0]->CheckpointOutcome(step);
}

void RunningRelay::PublishStep(const std::function<uint32_t(uint32_t, uint32_t)>& contributions,
                               const Announcements& announced) {
  std::vector<std::vector<server::Publication>> publications;
  for (uint32_t shard = 0; shard < servers_.size(); ++shard) {
    const auto of_shard = [&](uint32_t bundle) { return contributions(shard, bundle); };
    publications.push_back(step_->Publications(shard, of_shard, announced));
  }
  if (const uint64_t named = publications[0][0].checkpoint_step; named > 0) {
    MutexLock lock(&mutex_);
    named_below_ = named;
  }
  step_->Next();
  step_begun_ = false;
  for (uint32_t shard = 0; shard < servers_.size(); ++shard) {
    servers_[shard]->Publish(term_, publications[shard]);
  }
}

void RunningRelay::LeaveTheJob(const server::LeaveParent& leave) {
  const Parent parent = this->parent();
  if (leave.term != term_ || parent.session == nullptr) return;
  ReportUp(*servers_[0]->Status());
  const absl::Status left = parent.session->Leave();
  if (!left.ok()) return EndSession(left);
  {
    MutexLock lock(&mutex_);
    parent_ended_ = true;
  }
  servers_[0]->FinishParent(term_);
}

// After a rollback in a job with checkpoints, the rack's members join again, and the rack asks the
// parent job again.
void RunningRelay::EndSession(const absl::Status& why) {
  SetParent({});
  EndStep();
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    parent_ended_ = parent_ended_ || !worker::IsRollback(why);
  }
  if (worker::IsRollback(why)) {
    servers_[0]->ParentLost(term_, why.message());
  } else {
    servers_[0]->Fail(why.message());
  }
}

void RunningRelay::ReportUp(const server::JobStatus& rack) {
  const Parent parent = this->parent();
  if (parent.session == nullptr) return;
  const worker::Progress progress = ProgressOf(rack);
  if (progress.total_steps > 0) parent.session->Report(progress);
  if (const uint64_t durable = parent.session->durable_step(); durable > 0) {
    servers_[0]->ReleaseCheckpoints(durable);
  }
}

// Reports to the parent job that the rack itself has failed.
void RunningRelay::ReportToParent(const server::JobStatus& rack) {
  if (std::exchange(told_up_, true)) return;
  Parent parent;
  {
    MutexLock lock(&mutex_);
    if (!parent_ended_) parent = parent_;
  }
  if (parent.client != nullptr) parent.client->Abandon(rack.failure);
}

std::optional<absl::Status> RunningRelay::Outcome() {
  const server::JobStatus rack = *servers_[0]->Status();
  if (rack.phase == protocol::JobPhase::kFailed) ReportToParent(rack);
  if (clock_->Now() >= report_at_) {
    report_at_ = clock_->Now() + rack_spec_.server.heartbeat_interval;
    ReportUp(rack);
  }
  std::optional<absl::Status> outcome;
  for (const std::unique_ptr<server::Server>& server : servers_) {
    const std::optional<absl::Status> of_shard = server->Outcome();
    if (!of_shard.has_value()) return std::nullopt;
    if (!outcome.has_value()) outcome = of_shard;
  }
  return outcome;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Relay>> Relay::Start(RelayOptions options, const Clock* clock) {
  const size_t relays = options.job.relays.workers.size();
  if (options.relay >= relays) {
    return absl::InvalidArgumentError(
        relays == 0 ? "the job has no relays: its file has no `relays` section"
                    : absl::StrCat("relay ", options.relay, " does not exist: the job has ", relays,
                                   " relays, 0 to ", relays - 1));
  }
  auto relay = std::make_unique<RunningRelay>(std::move(options), clock);
  if (absl::Status started = relay->StartServers(); !started.ok()) return started;
  return relay;
}

}  // namespace sluice::relay
