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
#include "worker/rpc/remote_session.h"

namespace sluice::relay {
namespace {

// Joins in a row that end in a rollback before a step is done, as of workers.
constexpr int kFruitlessJoinsMax = 20;
constexpr size_t kHashBytes = 32;
constexpr uint64_t kConnectionsToCoordinator = 3;  // Beside one to each shard.

struct SumOfShard {
  uint32_t shard = 0;
  std::shared_ptr<const server::BundleSum> sum;
};
// The job above has ended this relay's session, of which this is the number.
struct SessionOver {
  uint64_t session = 0;
  absl::Status why;
};
struct StopNow {};
// What the rack's servers have for the job above, and what that has for them, in order. Bounded: a
// rack has one step open.
using ToDo = std::variant<SumOfShard, server::AskAbove, server::LeaveAbove, SessionOver, StopNow>;

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

class RunningRelay final : public Relay, public server::UpperSide {
 public:
  RunningRelay(RelayOptions options, const Clock* clock)
      : options_(std::move(options)),
        above_(job::JobOfServers(options_.job)),
        rack_(job::JobOfRack(options_.job, options_.relay)),
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
  void Asked(const server::AskAbove& ask) override { Push(ask); }
  void Finished(const server::LeaveAbove& leave) override { Push(leave); }

 private:
  void Push(ToDo what);
  ToDo Pop();
  // On the thread between the two sides.
  void Run();
  void JoinAbove(const server::AskAbove& ask);
  void TakeSum(const SumOfShard& from);
  absl::Status HandUp(const SumOfShard& from);
  absl::Status FinishStep();
  absl::Status AgreeOnParameters();
  std::optional<absl::Status> RackCheckpoint(uint64_t step);
  void PublishStep(const std::function<uint32_t(uint32_t, uint32_t)>& contributions,
                   uint64_t checkpoint_step);
  void LeaveTheJob(const server::LeaveAbove& leave);
  void EndSession(const absl::Status& why);
  void SetSession(std::shared_ptr<worker::Session> session);
  std::shared_ptr<worker::Session> session();
  void EndStep();
  void ReportUp(const server::JobStatus& rack);
  void TellUp(const server::JobStatus& rack);

  const RelayOptions options_;
  const job::JobSpec above_;
  const job::JobSpec rack_;
  const Clock* const clock_;
  const Logger logger_;

  Mutex mutex_;
  CondVar pushed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_above_ ABSL_GUARDED_BY(mutex_) = false;  // It has ended, and said why.
  std::deque<ToDo> to_do_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<worker::Session> session_ ABSL_GUARDED_BY(mutex_);
  uint64_t named_below_ ABSL_GUARDED_BY(mutex_) =
      0;  // Step of the last checkpoint that the rack was told.

  // The thread's alone.
  uint32_t term_ = 0;  // Of the rack.
  std::optional<RelayStep> step_;
  std::optional<RelayStep> ended_step_;
  bool buffers_due_ = false;
  bool step_begun_ = false;
  bool joined_before_ = false;
  uint64_t sessions_ = 0;  // Begun so far.

  // The caller's alone.
  bool told_up_ = false;
  absl::Time report_at_ = absl::InfinitePast();

  std::vector<std::unique_ptr<server::Server>> servers_;  // Of the rack, by shard.
  std::thread thread_;
};

RunningRelay::~RunningRelay() {
  std::shared_ptr<worker::Session> session;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    to_do_.push_front(StopNow());
    pushed_.SignalAll();
    session = session_;
  }
  if (session != nullptr) session->Cut();
  session.reset();
  if (thread_.joinable()) thread_.join();
  while (!servers_.empty()) servers_.pop_back();
}

// As many servers as the job above has shards, so that bundles are the same on both sides.
absl::Status RunningRelay::StartServers() {
  std::vector<server::DescriptorNeed> needs;
  for (uint32_t shard = 0; shard < rack_.shards; ++shard) {
    needs.push_back(server::NeedOf(rack_, shard, shard == 0 ? options_.http_connections : 0));
  }
  const absl::StatusOr<std::vector<uint64_t>> descriptors =
      server::ShareDescriptors(needs, above_.shards + kConnectionsToCoordinator, DescriptorLimit());
  if (!descriptors.ok()) return descriptors.status();
  for (uint32_t shard = 0; shard < rack_.shards; ++shard) {
    const bool first = shard == 0;
    const auto beside = [&](const std::string& address) {
      return first || address.empty() ? address : absl::StrCat(HostOf(address), ":0");
    };
    absl::StatusOr<std::unique_ptr<server::Server>> server = server::Server::Start(
        {.job = rack_,
         .shard = shard,
         .listen = beside(options_.listen),
         .advertise = beside(options_.advertise),
         .coordinator = first ? "" : servers_[0]->address(),
         .transport = options_.transport,
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

std::shared_ptr<worker::Session> RunningRelay::session() {
  MutexLock lock(&mutex_);
  return session_;
}

void RunningRelay::SetSession(std::shared_ptr<worker::Session> session) {
  MutexLock lock(&mutex_);
  if (stopping_ && session != nullptr) session->Cut();
  session_.swap(session);
}

void RunningRelay::Run() {
  for (;;) {
    const ToDo what = Pop();
    if (std::holds_alternative<StopNow>(what)) break;
    if (const auto* ask = std::get_if<server::AskAbove>(&what)) {
      JoinAbove(*ask);
    } else if (const auto* sum = std::get_if<SumOfShard>(&what)) {
      TakeSum(*sum);
    } else if (const auto* leave = std::get_if<server::LeaveAbove>(&what)) {
      LeaveTheJob(*leave);
    } else {
      const auto& over = std::get<SessionOver>(what);
      // Between two steps nobody waits for the job above, who would hear of it.
      if (over.session == sessions_ && step_.has_value()) EndSession(over.why);
    }
  }
  SetSession(nullptr);
}

// Its gradients stay where they are until the next one ends: for a moment the session may be in the
// hands of another thread, and it reads them until it is gone.
void RunningRelay::EndStep() {
  if (!step_.has_value()) return;
  ended_step_.emplace(*std::move(step_));
  step_.reset();
}

// What was before is over on this side; the job above takes the new session for a worker that was
// started again, and says where it is to begin.
void RunningRelay::JoinAbove(const server::AskAbove& ask) {
  SetSession(nullptr);
  EndStep();
  term_ = ask.term;
  {
    MutexLock lock(&mutex_);
    named_below_ = 0;
  }
  absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(ask.table, rack_.shards, rack_.compression.layout,
                            protocol::WholeRows(rack_.compression, ask.table));
  if (!layout.ok()) {
    servers_[0]->Fail(layout.status().message());
    return;
  }
  absl::StatusOr<worker::JoinInfo> joined;
  for (int fruitless = 0; fruitless < kFruitlessJoinsMax; ++fruitless) {
    worker::RemoteSessionOptions options =
        worker::OptionsFromJob(above_, options_.upstream, options_.relay);
    options.software_version = options_.software_version;
    options.transport = options_.transport;
    options.clock = clock_;
    options.logger = logger_;
    options.rejoining = std::exchange(joined_before_, true);
    options.may_restore = [this](uint64_t step) -> absl::Status {
      if (servers_[0]->HasCheckpoint(step)) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat("the rack of relay ", options_.relay, " has none in ",
                                              rack_.checkpoint.dir));
    };
    options.rest_of_checkpoint = [this](uint64_t step) { return RackCheckpoint(step); };
    options.on_end = [this, session = ++sessions_](const absl::Status& why) {
      Push(SessionOver{session, why});
    };
    std::shared_ptr<worker::Session> session = worker::MakeRemoteSession(std::move(options));
    SetSession(session);
    joined = session->Join(ask.table, std::string(kHashBytes, '\0'));
    if (joined.ok() || !worker::IsRollback(joined.status())) break;
    logger_.Warning(joined.status().message(), "; joining again");
    SetSession(nullptr);
  }
  if (!joined.ok()) return EndSession(joined.status());
  step_.emplace(ask.table, *std::move(layout), joined->first_step, joined->parameters_agree);
  step_begun_ = false;
  logger_.Info("joined the job at ", options_.upstream, "; begins with step ", joined->first_step);
  servers_[0]->BeginTerm(term_, joined->restored_step, joined->parameters_agree);
}

void RunningRelay::TakeSum(const SumOfShard& from) {
  if (from.sum->term != term_ || !step_.has_value()) return;
  absl::Status status = HandUp(from);
  if (status.ok() && step_->complete()) {
    status = step_->step() == 0 ? AgreeOnParameters() : FinishStep();
  }
  if (!status.ok()) EndSession(status);
}

absl::Status RunningRelay::HandUp(const SumOfShard& from) {
  const std::vector<uint32_t> ready = step_->Take(from.shard, *from.sum);
  if (step_->step() == 0) return absl::OkStatus();
  const std::shared_ptr<worker::Session> session = this->session();
  if (!std::exchange(step_begun_, true)) buffers_due_ = session->BuffersDue();
  // Where they are not due the session skips them by itself.
  if (step_->has_buffers(from.shard, from.sum->bundle) && !buffers_due_) return absl::OkStatus();
  absl::Status status = session->SetWeight(from.shard, from.sum->bundle, from.sum->n);
  for (const uint32_t tensor : ready) {
    if (!status.ok()) break;
    status = session->Submit(tensor, absl::Span<const float>(step_->values(tensor)));
  }
  return status;
}

absl::Status RunningRelay::FinishStep() {
  const std::shared_ptr<worker::Session> session = this->session();
  const absl::StatusOr<worker::StepResult> result = session->Wait();
  if (!result.ok()) return result.status();
  for (uint32_t tensor = 0; tensor < step_->tensors(); ++tensor) {
    if (step_->is_buffer(tensor) && !result->buffers_averaged) continue;
    const absl::Status applied = session->Apply(tensor, step_->values(tensor));
    if (!applied.ok()) return applied;
  }
  if (result->checkpoint_due) {
    // What the relay itself has is the session's: the rack's own checkpoint has the rest.
    const absl::Status saved = session->SaveCheckpoint("", {});
    if (!saved.ok()) return saved;
  }
  PublishStep(
      [&](uint32_t shard, uint32_t bundle) { return session->Contributions(shard, bundle); },
      session->named_checkpoint());
  return absl::OkStatus();
}

absl::Status RunningRelay::AgreeOnParameters() {
  std::vector<absl::Span<float>> parameters;
  for (uint32_t tensor = 0; tensor < step_->tensors(); ++tensor) {
    parameters.push_back(step_->values(tensor));
  }
  const absl::Status agreed = session()->AgreeOnParameters(parameters);
  if (!agreed.ok()) return agreed;
  PublishStep([](uint32_t, uint32_t) { return 1; }, 0);
  return absl::OkStatus();
}

// Above, a checkpoint counts as complete here only if the rack could go back to it.
std::optional<absl::Status> RunningRelay::RackCheckpoint(uint64_t step) {
  {
    MutexLock lock(&mutex_);
    if (named_below_ < step) {
      return absl::UnavailableError(absl::StrCat("the rack of relay ", options_.relay,
                                                 " did not hear of it before it was due"));
    }
  }
  return servers_[0]->CheckpointOutcome(step);
}

void RunningRelay::PublishStep(const std::function<uint32_t(uint32_t, uint32_t)>& contributions,
                               uint64_t checkpoint_step) {
  std::vector<std::vector<server::Publication>> publications;
  for (uint32_t shard = 0; shard < servers_.size(); ++shard) {
    publications.push_back(step_->Publications(
        shard, [&](uint32_t bundle) { return contributions(shard, bundle); }, checkpoint_step));
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

void RunningRelay::LeaveTheJob(const server::LeaveAbove& leave) {
  const std::shared_ptr<worker::Session> session = this->session();
  if (leave.term != term_ || session == nullptr) return;
  ReportUp(*servers_[0]->Status());
  const absl::Status left = session->Leave();
  if (!left.ok()) return EndSession(left);
  {
    MutexLock lock(&mutex_);
    over_above_ = true;
  }
  servers_[0]->FinishAbove(term_);
}

// In a job with checkpoints the rack gathers anew, and then asks again.
void RunningRelay::EndSession(const absl::Status& why) {
  SetSession(nullptr);
  EndStep();
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    over_above_ = over_above_ || !worker::IsRollback(why);
  }
  if (worker::IsRollback(why)) {
    servers_[0]->AboveLost(term_, why.message());
  } else {
    servers_[0]->Fail(why.message());
  }
}

void RunningRelay::ReportUp(const server::JobStatus& rack) {
  const std::shared_ptr<worker::Session> session = this->session();
  if (session == nullptr) return;
  const worker::Progress progress = ProgressOf(rack);
  if (progress.total_steps > 0) session->Report(progress);
  if (const uint64_t durable = session->durable_step(); durable > 0) {
    servers_[0]->ReleaseCheckpoints(durable);
  }
}

// The rack has failed by itself.
void RunningRelay::TellUp(const server::JobStatus& rack) {
  if (std::exchange(told_up_, true)) return;
  std::shared_ptr<worker::Session> session;
  {
    MutexLock lock(&mutex_);
    if (!over_above_) session = session_;
  }
  if (session != nullptr) session->Abandon(rack.failure);
}

std::optional<absl::Status> RunningRelay::Outcome() {
  const server::JobStatus rack = *servers_[0]->Status();
  if (rack.phase == server::JobPhase::kFailed) TellUp(rack);
  if (clock_->Now() >= report_at_) {
    report_at_ = clock_->Now() + rack_.server.heartbeat;
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
  const absl::Status started = relay->StartServers();
  if (!started.ok()) return started;
  return relay;
}

}  // namespace sluice::relay
