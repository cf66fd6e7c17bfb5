// SPDX-License-Identifier: Apache-2.0
#include "tests/server/coordinator/scenario_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/server/coordinator/scenario_messages.h"

namespace sluice::server {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);

}  // namespace

const std::map<std::string, ScenarioRun::Action, std::less<>>& ScenarioRun::Actions() {
  static const auto* const kActions = new std::map<std::string, Action, std::less<>>{
      {"job", &ScenarioRun::Job},          {"restart", &ScenarioRun::Restart},
      {"start", &ScenarioRun::Start},      {"join", &ScenarioRun::Join},
      {"cancel", &ScenarioRun::Cancel},    {"attach", &ScenarioRun::Attach},
      {"ack", &ScenarioRun::Acknowledge},  {"detach", &ScenarioRun::Detach},
      {"beat", &ScenarioRun::Beat},        {"health", &ScenarioRun::Health},
      {"leave", &ScenarioRun::Leave},      {"part", &ScenarioRun::Part},
      {"parts", &ScenarioRun::Parts},      {"named", &ScenarioRun::Named},
      {"written", &ScenarioRun::Written},  {"request", &ScenarioRun::Request},
      {"differs", &ScenarioRun::Differs},  {"fail", &ScenarioRun::Fail},
      {"tick", &ScenarioRun::Tick},        {"pass", &ScenarioRun::Pass},
      {"status", &ScenarioRun::Status},    {"refuses", &ScenarioRun::Refuses},
      {"examined", &ScenarioRun::Examined}};
  return *kActions;
}

std::vector<std::string> ScenarioRun::Do(const ScenarioCommand& command) {
  lines_.clear();
  const auto action = Actions().find(command.name());
  const bool known = action != Actions().end();
  EXPECT_TRUE(known) << "no command " << command.name();
  EXPECT_TRUE(coordinator_ != nullptr || command.name() == "job") << "the scenario has no job yet";
  if (!known || (coordinator_ == nullptr && command.name() != "job")) return {};
  (this->*action->second)(command);
  EXPECT_EQ(command.UnknownKey(), "") << "unknown key of " << command.name();
  return lines_;
}

void ScenarioRun::Create() {
  coordinator_ = std::make_unique<Coordinator>(options_, now_);
  for (auto& [label, stream] : streams_) stream.commands.clear();
  waiting_.clear();
  coordinator_->Begin(&effects_);
  Collect();
}

void ScenarioRun::Job(const ScenarioCommand& command) {
  options_ = OptionsFrom(command, {.job_name = "demo",
                                   .job_hash = 9,
                                   .software_version = "1",
                                   .world_size = 2,
                                   .shards = 2,
                                   .checkpoint = {.dir = "", .replay_limit = 0},
                                   .job_uid = 77});
  Create();
}

void ScenarioRun::Restart(const ScenarioCommand& command) {
  options_ = OptionsFrom(command, options_);
  options_.job_uid = 1234;  // The run continues with the uid of its record.
  options_.run = record_;
  options_.run->finished = command.Number("finished", record_.finished ? 1 : 0) != 0;
  options_.run->coordinator_incarnation =
      command.Number("coordinator", record_.coordinator_incarnation);
  options_.checkpoints.clear();
  const bool named = command.Has("checkpoints");
  const std::vector<uint64_t> steps = command.Numbers("checkpoints");
  for (const auto& [step, manifest] : complete_) {
    const bool wanted = std::find(steps.begin(), steps.end(), step) != steps.end();
    if (!named || wanted) options_.checkpoints.push_back(manifest);
  }
  Create();
}

uint64_t ScenarioRun::NewCall(std::string label) {
  ++calls_;
  names_.NameCall(calls_, std::move(label));
  return calls_;
}

ScenarioRun::Stream& ScenarioRun::StreamOf(const std::string& label) {
  EXPECT_TRUE(streams_.contains(label)) << "no stream " << label;
  return streams_[label];
}

ScenarioRun::Worker& ScenarioRun::WorkerOf(const std::string& label) {
  EXPECT_TRUE(workers_.contains(label)) << "no worker " << label;
  return workers_[label];
}

void ScenarioRun::JoinRank(uint32_t rank, protocol::WorkerJoin join, const std::string& label) {
  const uint64_t token = NewCall(label.empty() ? absl::StrCat("w", rank) : label);
  waiting_[token] = names_.Call(token);
  coordinator_->Join(token, std::move(join), now_, &effects_);
  Collect();
}

void ScenarioRun::AttachShard(const protocol::ShardArrival& arrival, const std::string& label) {
  const std::string name = label.empty() ? absl::StrCat("s", arrival.shard) : label;
  const ControlStreamId id = NewCall(name);
  streams_[name] = {.id = id, .shard = arrival.shard};
  coordinator_->AttachShard(id, arrival, now_, &effects_);
  Collect();
}

void ScenarioRun::AcknowledgeNewest(const std::string& label) {
  const Stream& stream = StreamOf(label);
  if (stream.commands.empty()) return;
  coordinator_->ShardAcknowledged(stream.id, stream.commands.back().sequence, now_, &effects_);
  Collect();
}

void ScenarioRun::Start(const ScenarioCommand& command) {
  const uint32_t ranks = options_.elastic ? options_.elastic->start : options_.world_size;
  for (uint32_t rank = 0; rank < ranks; ++rank) JoinRank(rank, JoinFrom(command, rank), "");
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    AttachShard(ArrivalFrom(command, shard), "");
  }
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    AcknowledgeNewest(absl::StrCat("s", shard));
  }
  if (command.HasWord("show")) return;
  lines_.clear();
  Print(state_);
}

void ScenarioRun::Join(const ScenarioCommand& command) {
  const auto rank = static_cast<uint32_t>(command.NumberAt(0));
  JoinRank(rank, JoinFrom(command, rank), command.Text("as"));
}

void ScenarioRun::Cancel(const ScenarioCommand& command) {
  for (const auto& [token, label] : std::map(waiting_)) {
    if (label != command.Word(0)) continue;
    coordinator_->JoinCancelled(token);
    coordinator_->RequestCancelled(token);
    waiting_.erase(token);
  }
  Collect();
}

void ScenarioRun::Attach(const ScenarioCommand& command) {
  const auto shard = static_cast<uint32_t>(command.NumberAt(0));
  AttachShard(ArrivalFrom(command, shard), command.Text("as"));
}

void ScenarioRun::Acknowledge(const ScenarioCommand& command) {
  const std::string label = command.Word(0);
  if (label == "all") {
    for (const auto& [name, stream] : std::map(streams_)) AcknowledgeNewest(name);
    return;
  }
  const Stream& stream = StreamOf(label);
  uint64_t sequence = command.Number("sequence", 0);
  const std::string kind = command.Word(1);
  for (const CommandShard& sent : stream.commands) {
    const bool is_start = std::holds_alternative<protocol::StartShard>(sent.command);
    const bool is_members = std::holds_alternative<protocol::SetMembers>(sent.command);
    if (command.Has("sequence")) break;
    if (kind.empty() || (kind == "start" && is_start) || (kind == "members" && is_members)) {
      sequence = sent.sequence;
    }
  }
  sequence -= command.Number("before", 0);
  coordinator_->ShardAcknowledged(stream.id, sequence, now_, &effects_);
  Collect();
}

void ScenarioRun::Detach(const ScenarioCommand& command) {
  coordinator_->ShardDetached(StreamOf(command.Word(0)).id);
  Collect();
}

void ScenarioRun::Beat(const ScenarioCommand& command) {
  const protocol::WorkerHeartbeat once = HeartbeatFrom(command, &WorkerOf(command.Word(0)).last);
  const absl::StatusOr<protocol::JobState> state = coordinator_->Heartbeat(once, now_, &effects_);
  Collect();
  Print(absl::StrCat(command.Word(0), ": ", TextOf(state, once.sender.term)));
}

void ScenarioRun::Health(const ScenarioCommand& command) {
  Stream& stream = StreamOf(command.Word(0));
  protocol::ShardHealthReport& health = stream.health;
  Reach(command.Word(0), command.Number("closed", health.highest_closed_step));
  health.results_from = command.Number("results_from", health.results_from);
  coordinator_->ShardHealth(stream.id, health, now_);
  Collect();
}

void ScenarioRun::Leave(const ScenarioCommand& command) {
  protocol::WorkerHeartbeat last = WorkerOf(command.Word(0)).last;
  last.replay_from = command.Number("replay_from", last.replay_from);
  const absl::StatusOr<protocol::JobState> state = coordinator_->Leave(
      {last, command.HasWord("finished"), command.Text("reason")}, now_, &effects_);
  Collect();
  Print(absl::StrCat(command.Word(0), ": ", TextOf(state, last.sender.term)));
}

void ScenarioRun::SendPart(bool of_worker, const std::string& sender,
                           protocol::CheckpointPart part) {
  if (of_worker) {
    const protocol::Sender& worker = WorkerOf(sender).last.sender;
    if (part.name.empty()) part.name = protocol::WorkerPartName(worker.rank, worker.term);
    const absl::Status status = coordinator_->WorkerPart(worker, part, now_, &effects_);
    if (!status.ok()) Print(TextOf(status));
  } else {
    const Stream& stream = StreamOf(sender);
    if (part.name.empty()) part.name = protocol::ShardPartName(stream.shard, part.term);
    coordinator_->ShardPart(stream.id, part, now_, &effects_);
  }
  Collect();
}

void ScenarioRun::Part(const ScenarioCommand& command) {
  SendPart(command.Word(0) == "worker", command.Word(1), PartFrom(command, coordinator_->term()));
}

void ScenarioRun::Parts(const ScenarioCommand& command) {
  const bool at_shards = options_.checkpoint.at_shards();
  const auto part = [&](uint64_t server) {
    return protocol::CheckpointPart{.term = coordinator_->term(),
                                    .step = command.NumberAt(0),
                                    .name = "",
                                    .bytes = 1,
                                    .error = "",
                                    .server = static_cast<uint32_t>(at_shards ? server : 0)};
  };
  std::vector<std::string> senders;
  for (size_t word = 1; word < command.words(); ++word) senders.push_back(command.Word(word));
  for (const std::string& sender : senders.empty() ? Present() : senders) {
    const bool of_worker = workers_.contains(sender);
    const uint32_t server =
        of_worker ? WorkerOf(sender).last.sender.rank % options_.shards : StreamOf(sender).shard;
    SendPart(of_worker, sender, part(server));
  }
}

std::vector<std::string> ScenarioRun::Present() const {
  std::map<uint32_t, std::string> shards;
  for (const auto& [label, stream] : streams_) {
    std::string& newest = shards[stream.shard];
    if (newest.empty() || streams_.at(newest).id < stream.id) newest = label;
  }
  std::map<uint32_t, std::string> ranks;
  for (const auto& [label, worker] : workers_) {
    std::string& newest = ranks[worker.grant.rank];
    if (newest.empty() || workers_.at(newest).call < worker.call) newest = label;
  }
  std::vector<std::string> labels;
  labels.reserve(shards.size() + ranks.size());
  for (const auto& [shard, label] : shards) labels.push_back(label);
  for (const auto& [rank, label] : ranks) labels.push_back(label);
  return labels;
}

void ScenarioRun::Examined(const ScenarioCommand& command) {
  protocol::CheckpointPart part;
  part.term = coordinator_->term();
  part.step = command.NumberAt(1);
  part.name = command.Text("name");
  part.error = command.Text("error");
  coordinator_->PartExamined(StreamOf(command.Word(0)).id, part, now_, &effects_);
  Collect();
}

void ScenarioRun::Named(const ScenarioCommand& command) {
  coordinator_->ShardNamedCheckpoint(StreamOf(command.Word(0)).id, command.NumberAt(1));
  Collect();
}

void ScenarioRun::Written(const ScenarioCommand& command) {
  const uint64_t step = command.NumberAt(0);
  const std::string error = command.Text("error");
  if (error.empty() && written_.contains(step)) complete_[step] = written_[step];
  coordinator_->CheckpointWritten(
      step, error.empty() ? absl::OkStatus() : absl::ResourceExhaustedError(error), now_,
      &effects_);
  Collect();
}

void ScenarioRun::Request(const ScenarioCommand& command) {
  const uint64_t token = NewCall(command.Word(0));
  waiting_[token] = command.Word(0);
  coordinator_->RequestCheckpoint(token, &effects_);
  Collect();
}

void ScenarioRun::Differs(const ScenarioCommand& command) {
  coordinator_->ShardNotReproducible(StreamOf(command.Word(0)).id,
                                     static_cast<uint32_t>(command.NumberAt(1)),
                                     command.Text("reason"), now_, &effects_);
  Collect();
}

void ScenarioRun::Refuses(const ScenarioCommand& command) {
  const protocol::JoinGrant& holder = WorkerOf(command.Word(1)).grant;
  coordinator_->ShardRefusedRank(StreamOf(command.Word(0)).id, holder.rank, holder.incarnation,
                                 command.Text("reason"), now_, &effects_);
  Collect();
}

void ScenarioRun::Fail(const ScenarioCommand& command) {
  coordinator_->Fail(command.Word(0), &effects_);
  Collect();
}

void ScenarioRun::Tick(const ScenarioCommand& command) {
  absl::Duration time;
  EXPECT_TRUE(absl::ParseDuration(command.Word(0), &time)) << command.Word(0);
  now_ += time;
  coordinator_->Tick(now_, &effects_);
  Collect();
}

void ScenarioRun::Reach(const std::string& reporter, uint64_t step) {
  if (!streams_.contains(reporter)) {
    WorkerOf(reporter).last.progress.step = step;
    return;
  }
  protocol::ShardHealthReport& health = streams_[reporter].health;
  health.highest_closed_step = step;
  health.highest_open_step = step + 1;
}

void ScenarioRun::Report(const std::string& reporter) {
  if (streams_.contains(reporter)) {
    const Stream& stream = streams_[reporter];
    coordinator_->ShardHealth(stream.id, stream.health, now_);
  } else if (coordinator_->phase() == protocol::JobPhase::kRunning) {
    const protocol::WorkerHeartbeat& beat = WorkerOf(reporter).last;
    const absl::StatusOr<protocol::JobState> state = coordinator_->Heartbeat(beat, now_, &effects_);
    EXPECT_TRUE(state.ok()) << reporter << ": " << state.status();
  }
  Collect();
}

void ScenarioRun::Pass(const ScenarioCommand& command) {
  absl::Duration time;
  EXPECT_TRUE(absl::ParseDuration(command.Word(0), &time)) << command.Word(0);
  const absl::Duration tick = command.Time("every", kTick);
  for (size_t word = 1; word < command.words() && command.Has("step"); ++word) {
    Reach(command.Word(word), command.Number("step", 0));
  }
  for (absl::Duration done; done < time;) {
    done += tick;
    const size_t before = lines_.size();
    now_ += tick;
    coordinator_->Tick(now_, &effects_);
    Collect();
    for (size_t word = 1; word < command.words(); ++word) Report(command.Word(word));
    for (size_t line = before; line < lines_.size(); ++line) {
      lines_[line] = absl::StrCat("+", absl::FormatDuration(done), " ", lines_[line]);
    }
  }
}

void ScenarioRun::Status(const ScenarioCommand&) {
  for (std::string& line : TextOf(coordinator_->Status(now_))) Print(std::move(line));
  if (coordinator_->AnyToldEnd()) Print("a worker knows the end");
  if (coordinator_->Drained()) Print("drained");
}

void ScenarioRun::Remember(CoordinatorEffect effect) {
  if (auto* join = std::get_if<AnswerJoin>(&effect)) {
    EXPECT_EQ(waiting_.erase(join->token), 1u) << "a call must be answered only once";
    if (!join->grant.ok()) return;
    Worker& worker = workers_[names_.Call(join->token)];
    worker = {.call = join->token, .grant = *std::move(join->grant), .last = {}};
    worker.last.sender = {.job_uid = worker.grant.job_uid,
                          .term = worker.grant.term,
                          .rank = worker.grant.rank,
                          .incarnation = worker.grant.incarnation,
                          .generation = worker.grant.generation};
    worker.last.replay_from = 1;
    for (const protocol::ShardPlace& place : worker.grant.shards) {
      worker.last.known_shards.push_back(place.server_incarnation);
    }
  } else if (auto* answer = std::get_if<AnswerCheckpoint>(&effect)) {
    EXPECT_EQ(waiting_.erase(answer->token), 1u) << "a call must be answered only once";
  } else if (auto* command = std::get_if<CommandShard>(&effect)) {
    for (auto& [label, stream] : streams_) {
      if (stream.id == command->stream) stream.commands.push_back(std::move(*command));
    }
  } else if (auto* record = std::get_if<PersistRun>(&effect)) {
    record_ = std::move(record->record);
  } else if (auto* write = std::get_if<WriteCheckpoint>(&effect)) {
    written_[write->manifest.step] = std::move(write->manifest);
  } else if (const auto* drop = std::get_if<DropCheckpoint>(&effect)) {
    complete_.erase(drop->step);
  }
}

void ScenarioRun::Collect() {
  for (CoordinatorEffect& effect : effects_) {
    Print(TextOf(effect, &names_));
    Remember(std::move(effect));
  }
  effects_.clear();
  PrintState();
}

void ScenarioRun::PrintState() {
  std::string state = absl::StrCat("state: ", protocol::ToString(coordinator_->phase()), " term ",
                                   coordinator_->term());
  if (!coordinator_->failure().empty()) absl::StrAppend(&state, ": ", coordinator_->failure());
  if (state == state_) return;
  state_ = state;
  lines_.push_back(std::move(state));
}

void ScenarioRun::Print(std::string line) {
  const std::string& failure = coordinator_->failure();
  if (!failure.empty() && absl::EndsWith(line, failure) && line != state_) {
    line = absl::StrCat(absl::StripSuffix(line, failure), "the failure");
  }
  lines_.push_back(std::move(line));
}

std::string RunScenario(absl::string_view text) {
  ScenarioRun run;
  std::string out;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    if (absl::StartsWith(line, "  ")) continue;  // The expected effects.
    absl::StrAppend(&out, line, "\n");
    if (line.empty() || line[0] == '#' || absl::StartsWith(line, "scenario ")) continue;
    for (const std::string& effect : run.Do(ScenarioCommand(line))) {
      absl::StrAppend(&out, "  ", effect, "\n");
    }
  }
  return out;
}

}  // namespace sluice::server
