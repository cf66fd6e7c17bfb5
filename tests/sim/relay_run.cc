// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/relay_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/worker/core/read_results.h"

namespace sluice {

namespace {

uint64_t NewestPlan(const SimRank& rank) {
  const std::vector<protocol::CompressionPlan> plans = rank.pipeline->KnownPlans();
  return plans.empty() ? 0 : plans.back().id;
}

}  // namespace

void RackRun::KillServers() {
  for (const ProcessId process : serving_) Kill(process);
}

void RackRun::StartServers() {
  for (const ProcessId process : serving_) Start(process);
}

void RackRun::StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree) {
  if (HasBug(SurvivalBug::kRackBeginsWithItsNewest) && !disk_.manifests().empty() &&
      HasCheckpoint(disk_.manifests().rbegin()->first)) {
    restore_step = disk_.manifests().rbegin()->first;
  }
  for (const auto& [step, manifest] : disk_.manifests()) {
    if (step > restore_step) discarded_.insert(step);
  }
  server::Coordinator::Effects effects;
  coordinator_->core().StartRackTerm(term, restore_step, parameters_agree, Now(), &effects);
  coordinator_->CarryOut(effects);
}

void RackRun::ParentLost(uint32_t term) {
  server::Coordinator::Effects effects;
  coordinator_->core().ParentLost(term, "the job above goes back", Now(), &effects);
  coordinator_->CarryOut(effects);
}

void RackRun::FinishParent(uint32_t term) {
  if (coordinator_ == nullptr) return;
  server::Coordinator::Effects effects;
  coordinator_->core().FinishParent(term, &effects);
  coordinator_->CarryOut(effects);
}

void RackRun::Publish(uint32_t term,
                      const std::vector<std::vector<server::Publication>>& publications) {
  for (uint32_t shard = 0; shard < publications.size(); ++shard) {
    for (const server::Publication& publication : publications[shard]) {
      const SimServer& server = servers_[serving_[shard]];
      if (server.core == nullptr || server.core->options().term != term) break;
      CarryOut(serving_[shard], server.core->Publish(publication));
    }
  }
}

void RackRun::Release(uint64_t durable_step) {
  if (coordinator_ != nullptr) coordinator_->core().ReleaseCheckpoints(durable_step);
}

bool RackRun::HasCheckpoint(uint64_t step) const {
  return coordinator_->core().HasCheckpoint(step);
}

bool RackRun::MayLack(uint64_t step) const {
  return disk_.WasSpoilt(step) || discarded_.contains(step);
}

std::optional<absl::Status> RackRun::CheckpointOutcome(uint64_t step) const {
  if (coordinator_ == nullptr) return std::nullopt;
  return coordinator_->core().CheckpointOutcome(step);
}

void RackRun::EndWithTheJob() {
  ended_with_the_job_ = true;
  for (SimRank& rank : ranks_) rank.state = SimRank::State::kDone;
}

// If the relays do not wait for each other, a worker has the parameters of its relay after each
// step.
void RackRun::FinishStep(uint32_t index) {
  SurvivalRun::FinishStep(index);
  const SimRank& rank = ranks_[index];
  const std::vector<std::vector<float>>* const wanted = above_.ParametersAfter(relay_, rank.step);
  if (wanted == nullptr || *wanted == rank.parameters) return;
  Violate(absl::StrCat("rank ", index, " of rack ", relay_, " has other parameters after step ",
                       rank.step, " than its relay"));
}

// The workers of a rack must know the same plan as its relay.
void RackRun::CheckEnd(uint32_t index) {
  SurvivalRun::CheckEnd(index);
  const uint64_t plan = NewestPlan(ranks_[index]);
  const uint64_t of_relay = above_.NewestPlanOf(relay_);
  if (plan == of_relay || of_relay == 0 || !options_.control.makes_plans()) return;
  Violate(absl::StrCat("rank ", index, " of rack ", relay_, " ends with plan ", plan,
                       " and its relay with plan ", of_relay));
}

void RackRun::Asked(const server::AskParent& ask) { above_.Ask(relay_, ask); }

void RackRun::Finished(const server::LeaveParent& leave) { above_.Finish(relay_, leave); }

void RackRun::Summed(uint32_t shard, std::shared_ptr<const server::BundleSum> sum) {
  above_.HandleSum(relay_, shard, std::move(sum));
}

// Posts work from the servers' threads to the thread between the two sides.
void ParentRun::Queue(uint32_t index, std::function<void()> what) {
  const ProcessId process = WorkerProcess(index);
  ArriveAt({"relay", index}, process, processes_[process].life, &relays_[index].last,
           [this, index, what = std::move(what)] {
             relays_[index].from_below.push_back(what);
             DoQueued(index);
           });
}

void ParentRun::DoQueued(uint32_t index) {
  Relay& relay = relays_[index];
  while (!relay.busy && !relay.from_below.empty()) {
    const std::function<void()> what = std::move(relay.from_below.front());
    relay.from_below.pop_front();
    what();
  }
}

uint64_t ParentRun::NewestPlanOf(uint32_t relay) const {
  const SimRank& rank = ranks_[relay];
  return rank.pipeline == nullptr || rank.pipeline->step() < options_.steps ? 0 : NewestPlan(rank);
}

void ParentRun::Ask(uint32_t index, const server::AskParent& ask) {
  Queue(index, [this, index, term = ask.term] { JoinAbove(index, term); });
}

void ParentRun::HandleSum(uint32_t index, uint32_t shard,
                          std::shared_ptr<const server::BundleSum> sum) {
  Queue(index, [this, index, shard, sum = std::move(sum)] { HandUp(index, shard, *sum); });
}

void ParentRun::Finish(uint32_t index, const server::LeaveParent& leave) {
  Queue(index, [this, index, term = leave.term] {
    Relay& relay = relays_[index];
    if (term != relay.term || relay.lost || !Talks(ranks_[index])) return;
    if (async_ == nullptr) CheckUplink(index);
    relay.busy = true;
    ranks_[index].state = SimRank::State::kLeaving;
    Leave(index);
  });
}

// Starts the relay's upper side again for a new term of its rack.
void ParentRun::JoinAbove(uint32_t index, uint32_t term) {
  SimRank& rank = ranks_[index];
  Relay& relay = relays_[index];
  relay.step.reset();
  relay.published.clear();
  relay.named_below = 0;
  relay.term = term;
  relay.lost = false;
  if (disk_.finished()) {
    rank.state = SimRank::State::kDone;
    return racks_[index]->EndWithTheJob();
  }
  const bool had_session = Talks(rank);
  // A session cannot restart within a step.
  const bool may_go_on = had_session && !relay.begun && !rank.pipeline->step_open();
  if (may_go_on && HasBug(SurvivalBug::kRelayKeepsItsSession)) {
    relay.step.emplace(table_, layout_, rank.restored + 1, rank.restored > 0);
    return racks_[index]->StartRackTerm(term, rank.restored, rank.restored > 0);
  }
  for (uint32_t shard = 0; shard < rank.links.size(); ++shard) BreakLink(index, shard);
  rank.links.clear();
  rank.state = SimRank::State::kOut;
  ++rank.session;
  if (had_session) NoteWhoIsAlive();
  relay.busy = relay.joining = true;
  BeginSession(index);
}

absl::Status ParentRun::MayRestore(uint32_t index, uint64_t step) {
  if (racks_[index]->HasCheckpoint(step) || HasBug(SurvivalBug::kRackNotAsked))
    return absl::OkStatus();
  if (!racks_[index]->MayLack(step)) {
    Violate(absl::StrCat("the checkpoint of step ", step, " is complete, but rack ", index,
                         " has none"));
  }
  excuse_ = "a rack has no such checkpoint";
  disk_.Refuse(step);
  disk_.NoteRead(protocol::WorkerPartName(ranks_[index].rank, disk_.TermOf(step)));
  return absl::DataLossError(absl::StrCat("the rack of relay ", index, " has none"));
}

void ParentRun::BeginWork(uint32_t index, const protocol::JoinGrant& grant) {
  Relay& relay = relays_[index];
  relay.step.emplace(table_, layout_, grant.first_step, grant.parameters_agree,
                     /*keeps_parameters=*/async_ != nullptr);
  relay.begun = relay.busy = relay.joining = false;
  racks_[index]->StartRackTerm(relay.term, grant.restore_step, grant.parameters_agree);
  DoQueued(index);
}

void ParentRun::HandUp(uint32_t index, uint32_t shard, const server::BundleSum& sum) {
  Relay& relay = relays_[index];
  if (sum.term != relay.term || !relay.step.has_value()) return;
  if (relay.lost) return LoseSession(index);
  for (auto& of_shard : relay.published) {
    for (server::Publication& publication : of_shard) publication.step = relay.step->step();
  }
  racks_[index]->Publish(relay.term, relay.published);
  relay.published.clear();
  relay::RelayStep& step = *relay.step;
  if (sum.step != step.step()) {
    return Violate(absl::StrCat("rack ", index, " passes on step ", sum.step,
                                ", but its relay is at ", step.step()));
  }
  worker::Pipeline& pipeline = *ranks_[index].pipeline;
  const std::vector<uint32_t> ready = step.Take(shard, sum);
  if (step.step() == 0) {
    if (step.complete()) AgreeOnParameters(index);
    return;
  }
  if (!std::exchange(relay.begun, true)) BeginStepAbove(index);
  relay.busy = step.complete();
  PlantInStep(&relay, sum.n, ready);
  if (step.IsNeeded(shard, sum.bundle, /*buffers_due=*/false)) {
    if (sum.n > 0) pipeline.SetRate(sum.rate);
    Check(pipeline.SetWeight(shard, sum.bundle, PlantedWeight(sum.n)).ok(), "it is a bundle");
  }
  for (const uint32_t tensor : ready) {
    if (!step.IsTensorNeeded(tensor, /*buffers_due=*/false)) continue;
    if (!pipeline.TensorReady(tensor, absl::Span<const float>(step.values(tensor))).ok()) return;
  }
  EncodeNext(index);
  if (step.complete() && !pipeline.step_open()) FinishStep(index);
}

uint32_t ParentRun::PlantedWeight(uint32_t n) const {
  if (HasBug(SurvivalBug::kWeightForgotten)) return std::min(n, 1u);
  return HasBug(SurvivalBug::kNothingCountsAsOne) ? std::max(n, 1u) : n;
}

void ParentRun::PlantInStep(Relay* relay, uint32_t n, const std::vector<uint32_t>& ready) const {
  for (const uint32_t tensor : ready) {
    if (!HasBug(SurvivalBug::kSumDivided)) return;
    for (float& x : relay->step->values(tensor)) x /= static_cast<float>(std::max(n, 1u));
  }
}

void ParentRun::BeginStepAbove(uint32_t index) {
  if (IsChecked(ranks_[index])) async_->StepBegins(index);
  ranks_[index].pipeline->StartStep();
}

void ParentRun::TakeResults(uint32_t index) {
  relay::RelayStep& step = *relays_[index].step;
  SimRank& rank = ranks_[index];
  const worker::Pipeline& pipeline = *rank.pipeline;
  const bool updates = step.keeps_parameters() && step.step() > 0;
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    const absl::Status taken =
        updates ? ReadResult(pipeline, tensor, worker::ResultUse::kUpdate, step.result(tensor))
                : ReadMean(pipeline, tensor, step.values(tensor));
    Check(taken.ok(), "a done step decodes");
  }
  if (step.step() == 0) step.KeepParameters();
  if (!step.keeps_parameters()) return;
  rank.parameters.resize(table_.size());
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    rank.parameters[tensor].assign(step.result(tensor).begin(), step.result(tensor).end());
  }
  if (IsChecked(rank)) async_->StepDone(rank.rank, pipeline);
}

const std::vector<std::vector<float>>* ParentRun::ParametersAfter(uint32_t relay,
                                                                  uint64_t step) const {
  const std::optional<relay::RelayStep>& of = relays_[relay].step;
  const bool is_known =
      of.has_value() && of->keeps_parameters() && ranks_[relay].step == step && of->step() != step;
  return is_known ? &ranks_[relay].parameters : nullptr;
}

void ParentRun::AgreeOnParameters(uint32_t index) {
  Relay& relay = relays_[index];
  SimRank& rank = ranks_[index];
  relay.busy = true;
  BeginStepAbove(index);
  if (index != 0) {
    worker::Pipeline::Effects effects;
    Check(rank.pipeline->SkipStep(&effects).ok(), "a step can be skipped");
    return CarryOut(index, effects);
  }
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    const absl::Span<const float> values = relay.step->values(tensor);
    if (!rank.pipeline->TensorReady(tensor, values).ok()) return;
  }
  EncodeNext(index);
}

void ParentRun::FinishStep(uint32_t index) {
  Relay& relay = relays_[index];
  SimRank& rank = ranks_[index];
  if (!Talks(rank) || !relay.step.has_value()) return;
  // The parent job does not wait for the sums of bundles that are not due. Then this call may be
  // late for its own step, which the last sum has ended.
  const worker::Pipeline& pipeline = *rank.pipeline;
  if (!relay.step->complete() || pipeline.step_open()) return;
  rank.step = pipeline.step();
  TakeResults(index);
  if (pipeline.Result().checkpoint_due) SaveCheckpoint(index, "");
  relay::Announcements announced;
  if (rank.step > 0) announced = {pipeline.named_checkpoint(), pipeline.AnnouncedPlan()};
  if (HasBug(SurvivalBug::kPlanNotToldToRack)) announced.plan = nullptr;
  std::vector<std::vector<server::Publication>> publications;
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    publications.push_back(relay.step->Publications(
        shard, [&](uint32_t bundle) { return pipeline.Record(shard, bundle).n; }, announced));
  }
  for (auto& of_shard : publications) {
    for (server::Publication& publication : of_shard) {
      if (HasBug(SurvivalBug::kParametersAsChange) && rank.step > 0) publication.exact = false;
    }
  }
  if (const uint64_t named = publications[0][0].checkpoint_step; named > 0) {
    relay.named_below = named;
  }
  relay.step->Next();
  relay.begun = relay.busy = false;
  racks_[index]->Publish(relay.term, publications);
  if (HasBug(SurvivalBug::kResultPublishedTwice)) relay.published = std::move(publications);
  DoQueued(index);
}

void ParentRun::ReportWorkerPart(uint32_t index, const protocol::Sender& sender,
                                 protocol::CheckpointPart part) {
  if (part.error.empty() && !HasBug(SurvivalBug::kRackNotAwaited)) {
    if (ranks_[index].sender != sender) return;  // The session is over.
    std::optional<absl::Status> rest = absl::UnavailableError("the rack was not told of it");
    if (relays_[index].named_below >= part.step) rest = racks_[index]->CheckpointOutcome(part.step);
    if (!rest.has_value()) {
      return At(kRetry, WorkerProcess(index), [this, index, sender, part = std::move(part)] {
        ReportWorkerPart(index, sender, part);
      });
    }
    part.error = std::string(rest->message());
  }
  SurvivalRun::ReportWorkerPart(index, sender, std::move(part));
}

// While it joins, the relay tries again. Otherwise its thread notices at once if it waits for the
// parent job, and later when a message arrives from the rack or the thread polls.
void ParentRun::SessionEnded(uint32_t index) {
  Relay& relay = relays_[index];
  if (relay.joining) return SurvivalRun::SessionEnded(index);
  relay.lost = true;
  if (relay.busy) return LoseSession(index);
  InSession(index, Below({"hand_up", index}, kHeartbeat), [this, index] {
    if (relays_[index].lost) LoseSession(index);
  });
}

void ParentRun::LoseSession(uint32_t index) {
  Relay& relay = relays_[index];
  relay.step.reset();
  relay.lost = relay.busy = false;
  if (!HasBug(SurvivalBug::kLossAboveNotTold)) racks_[index]->ParentLost(relay.term);
  DoQueued(index);
}

void ParentRun::StateHeard(uint32_t index) {
  if (ranks_[index].pipeline->durable_step() > 0) {
    racks_[index]->Release(ranks_[index].pipeline->durable_step());
  }
}

void ParentRun::Done(uint32_t index) {
  Relay& relay = relays_[index];
  const bool joining = std::exchange(relay.joining, false);
  relay.busy = false;
  if (joining) return racks_[index]->EndWithTheJob();
  racks_[index]->FinishParent(relay.term);
  DoQueued(index);
}

std::string ParentRun::WhereRelaysAre() const {
  std::string where;
  for (uint32_t index = 0; index < options_.ranks; ++index) {
    const Relay& relay = relays_[index];
    absl::StrAppend(&where, ", relay ", index, " for term ", relay.term,
                    relay.joining ? ", joins" : "", relay.busy ? ", waits" : "",
                    relay.lost ? ", has lost its session" : "",
                    relay.step.has_value() ? absl::StrCat(", step ", relay.step->step()) : "", ", ",
                    relay.from_below.size(), " to do");
  }
  return where;
}

}  // namespace sluice
