// SPDX-License-Identifier: Apache-2.0
// The property of the coordinator's handlers: any sequence of messages of workers and shards gives
// replies that their receivers can parse, at most one answer for each call, and no crash.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/membership_messages.h"
#include "protocol/wire/shard_messages.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_report.h"
#include "server/http/metrics_text.h"
#include "server/http/status_json.h"
#include "server/rpc/status_reply.h"
#include "tests/fuzz/message_input.h"

namespace sluice::server {

// A job of two ranks and two shards. The bits of `kind` choose its options.
class CoordinatorProperty {
 public:
  explicit CoordinatorProperty(uint8_t kind)
      : options_(OptionsOf(kind)), coordinator_(options_, now_) {
    Collect([&] { coordinator_.Begin(&effects_); });
  }

  // Carries out the next event of the input.
  void Act(FuzzInput* input) {
    now_ += absl::Milliseconds(1);
    const uint8_t event = input->Byte();
    switch (event % 12) {
      case 0:
        return Join(event / 12 % 2, input);
      case 1:
        return Heartbeat(event / 12 % 2, input);
      case 2:
        return Leave(event / 12 % 2, input);
      case 3:
        return ReportCheckpoint(event / 12 % 2, input);
      case 4:
        return Attach(event / 12 % 2, input);
      case 5:
        return Report(event / 12 % 2, input);
      case 6:
        return Disconnect(event / 12 % 2);
      case 7:
        return Written(event / 12 % 2 == 0);
      case 8:
        return Request(event / 12 % 2 == 0);
      case 9:
        return Collect([&] {
          now_ += absl::Milliseconds(input->Short());
          coordinator_.Tick(now_, &effects_);
        });
      case 10:
        return event / 12 % 2 == 0 ? CheckStatus() : Administer(input);
      default:
        return ActHonestly();
    }
  }

 private:
  struct Stream {
    ControlStreamId id = 0;  // 0 if the shard has no stream.
    uint64_t last_command = 0;
  };

  static CoordinatorOptions OptionsOf(uint8_t kind) {
    CoordinatorOptions options{.job_name = "demo",
                               .job_hash = 9,
                               .software_version = "1",
                               .world_size = 2,
                               .shards = 2,
                               .job_uid = 77};
    if ((kind & 1) != 0) {
      options.checkpoint.dir = "/checkpoints";
      options.checkpoint.interval = 10;
      if ((kind & 2) != 0) options.checkpoint.store = protocol::CheckpointStore::kShards;
      if ((kind & 4) == 0) options.checkpoint.replay_limit = 0;
    }
    if ((kind & 5) == 5 && (kind & 8) != 0) options.elastic = ElasticMembership{};
    options.shards_update = (kind & 16) != 0;
    return options;
  }

  protocol::Sender SenderOf(uint32_t rank) const {
    const auto grant = grants_.find(rank);
    if (grant == grants_.end()) return {.job_uid = 77, .rank = rank};
    return {.job_uid = grant->second.job_uid,
            .term = grant->second.term,
            .rank = rank,
            .incarnation = grant->second.incarnation,
            .generation = grant->second.generation};
  }
  protocol::WorkerHeartbeat BeatOf(uint32_t rank) const {
    protocol::WorkerHeartbeat beat;
    beat.sender = SenderOf(rank);
    beat.progress.step = step_;
    return beat;
  }

  void Join(uint32_t rank, FuzzInput* input) {
    v1::JoinRequest honest;
    protocol::JoinToProto(
        {.job_name = "demo",
         .job_hash = 9,
         .nonce = 1000 + rank + (input->Byte() == 1 ? ++starts_ : 0),
         .rank = rank,
         .table = {{.name = "w", .shape = {4}, .strides = {}, .dtype = protocol::DType::kFloat32}},
         .parameters_sha256 = std::string(32, 's'),
         .software_version = "1",
         .host = "a",
         .pid = 120 + rank},
        &honest);
    const auto message = NextMessage(input, honest);
    if (!message.has_value()) return;
    absl::StatusOr<protocol::WorkerJoin> join = protocol::JoinFromProto(*message);
    if (!join.ok()) return CheckError(join.status());
    const JoinToken token = ++last_token_;
    joins_.emplace(token, join->rank);
    Collect([&] { coordinator_.Join(token, *std::move(join), now_, &effects_); });
  }

  void Heartbeat(uint32_t rank, FuzzInput* input) {
    step_ += input->Byte() % 4;
    v1::HeartbeatRequest honest;
    protocol::HeartbeatToProto(BeatOf(rank), &honest);
    const auto message = NextMessage(input, honest);
    if (!message.has_value()) return;
    const auto heartbeat = protocol::HeartbeatFromProto(*message);
    if (!heartbeat.ok()) return CheckError(heartbeat.status());
    absl::StatusOr<protocol::JobState> state;
    Collect([&] { state = coordinator_.Heartbeat(*heartbeat, now_, &effects_); });
    if (!state.ok()) return CheckError(state.status());
    v1::HeartbeatReply reply;
    protocol::HeartbeatReplyToProto({.job = *state, .server_incarnation = 1}, &reply);
    Received(reply);
  }

  void Leave(uint32_t rank, FuzzInput* input) {
    v1::LeaveRequest honest;
    protocol::LeaveToProto({.last = BeatOf(rank), .finished = true, .reason = ""}, &honest);
    const auto message = NextMessage(input, honest);
    if (!message.has_value()) return;
    const auto leave = protocol::LeaveFromProto(*message);
    if (!leave.ok()) return CheckError(leave.status());
    absl::StatusOr<protocol::JobState> state;
    Collect([&] { state = coordinator_.Leave(*leave, now_, &effects_); });
    if (!state.ok()) return CheckError(state.status());
    v1::LeaveReply reply;
    protocol::LeaveAnswerToProto(*state, &reply);
    Received(reply);
  }

  protocol::CheckpointPart PartOf(const std::string& name) const {
    protocol::CheckpointPart part;
    part.term = coordinator_.term();
    part.step = named_;
    part.name = name;
    part.bytes = 100;
    return part;
  }

  void ReportCheckpoint(uint32_t rank, FuzzInput* input) {
    v1::ReportCheckpointRequest honest;
    protocol::SenderToProto(SenderOf(rank), honest.mutable_sender());
    protocol::PartToProto(PartOf(protocol::WorkerPartName(rank, coordinator_.term())),
                          honest.mutable_part());
    const auto message = NextMessage(input, honest);
    if (!message.has_value()) return;
    absl::Status status;
    Collect([&] {
      status =
          coordinator_.WorkerPart(protocol::SenderFromProto(message->sender()),
                                  protocol::CheckedPartFromProto(message->part()), now_, &effects_);
    });
    if (!status.ok()) CheckError(status);
  }

  void Administer(FuzzInput* input) {
    const uint8_t what = input->Byte();
    Collect([&] {
      const auto evicted =
          coordinator_.Evict({.rank = what % 3U, .allow_rollback = what > 127}, now_, &effects_);
      if (!evicted.ok()) CheckError(evicted.status());
    });
    Collect([&] {
      const auto changed =
          coordinator_.Change({.lease_timeout = absl::Milliseconds(input->Short())}, &effects_);
      if (!changed.ok()) CheckError(changed.status());
    });
  }

  void Attach(uint32_t shard, FuzzInput* input) {
    const v1::ShardHello honest =
        protocol::HelloToProto({.job_name = "demo",
                                .job_hash = 9,
                                .shard = shard,
                                .address = absl::StrCat("h:", 7070 + shard),
                                .server_incarnation = coordinator_.NumberShard(),
                                .software_version = "1"});
    const auto message = NextMessage(input, honest);
    if (!message.has_value()) return;
    Disconnect(shard);
    streams_[shard] = {.id = ++last_stream_, .last_command = 0};
    Collect([&] {
      coordinator_.AttachShard(streams_[shard].id, protocol::HelloFromProto(*message), now_,
                               &effects_);
    });
  }

  void Report(uint32_t shard, FuzzInput* input) {
    v1::ShardReport honest;
    switch (input->Byte() % 4) {
      case 0:
        honest.set_acknowledged(streams_[shard].last_command);
        break;
      case 1:
        honest.set_checkpoint_named(named_ = step_ + 2);
        break;
      case 2:
        protocol::PartToProto(PartOf(protocol::ShardPartName(shard, coordinator_.term())),
                              honest.mutable_part());
        break;
      default:
        *honest.mutable_health() = protocol::HealthToProto({.highest_closed_step = step_});
    }
    const auto message = NextMessage(input, honest);
    if (!message.has_value() || streams_[shard].id == 0) return;
    Collect([&] { Handle(streams_[shard].id, *message); });
  }

  void Handle(ControlStreamId stream, const v1::ShardReport& report) {
    switch (report.report_case()) {
      case v1::ShardReport::kHealth:
        return coordinator_.ShardHealth(stream, protocol::HealthFromProto(report.health()), now_);
      case v1::ShardReport::kAcknowledged:
        return coordinator_.ShardAcknowledged(stream, report.acknowledged(), now_, &effects_);
      case v1::ShardReport::kFailed:
        return coordinator_.ShardFailed(stream, report.failed(), &effects_);
      case v1::ShardReport::kPart:
        return coordinator_.ShardPart(stream, protocol::CheckedPartFromProto(report.part()), now_,
                                      &effects_);
      case v1::ShardReport::kCheckpointNamed:
        return coordinator_.ShardNamedCheckpoint(stream, report.checkpoint_named());
      case v1::ShardReport::kNotReproducible:
        return coordinator_.ShardNotReproducible(stream, report.not_reproducible().rank(),
                                                 report.not_reproducible().reason(), now_,
                                                 &effects_);
      case v1::ShardReport::kRankRefused:
        return coordinator_.ShardRefusedRank(stream, report.rank_refused().rank(),
                                             report.rank_refused().incarnation(),
                                             report.rank_refused().reason(), now_, &effects_);
      case v1::ShardReport::kPartExamined:
        return coordinator_.PartExamined(
            stream, protocol::CheckedPartFromProto(report.part_examined()), now_, &effects_);
      case v1::ShardReport::kHello:  // The service closes the stream.
      case v1::ShardReport::REPORT_NOT_SET:
        return;
    }
  }

  void Disconnect(uint32_t shard) {
    if (streams_[shard].id != 0) coordinator_.ShardDetached(streams_[shard].id);
    streams_[shard] = {};
  }

  void Written(bool well) {
    if (manifests_.empty()) return;
    const uint64_t step = manifests_.front();
    manifests_.erase(manifests_.begin());
    const absl::Status status =
        well ? absl::OkStatus() : absl::UnavailableError("the disk is full");
    Collect([&] { coordinator_.CheckpointWritten(step, status, now_, &effects_); });
  }

  void Request(bool keep) {
    const CheckpointToken token = ++last_token_;
    requests_.insert(token);
    Collect([&] { coordinator_.RequestCheckpoint(token, &effects_); });
    if (keep || requests_.erase(token) == 0) return;
    coordinator_.RequestCancelled(token);
  }

  void CheckStatus() {
    const JobStatus status = coordinator_.Status(now_);
    history_.Add(status, now_);
    HttpView view;
    view.job = status;
    view.report = MakeReport(status, history_, absl::Seconds(10));
    v1::GetStatusReply reply;
    StatusToProto(status, view.report->warnings, &reply);
    Received(reply);
    const auto page = nlohmann::json::parse(StatusJson(view), nullptr, /*allow_exceptions=*/false);
    Check(page.is_object(), "the page is JSON");
    Check(!MetricsText(view).empty(), "there are metrics");
  }

  // Brings the job to its next state, as honest processes would.
  void ActHonestly() {
    FuzzInput honest(nullptr, 0);
    for (const uint32_t rank : {0u, 1u}) {
      const auto grant = grants_.find(rank);
      const bool has_term = grant != grants_.end() && grant->second.term == coordinator_.term();
      if (!has_term) Join(rank, &honest);
    }
    for (const uint32_t shard : {0u, 1u}) {
      if (streams_[shard].id == 0) Attach(shard, &honest);
    }
    for (const uint32_t shard : {0u, 1u}) Report(shard, &honest);
    for (const uint32_t rank : {0u, 1u}) Heartbeat(rank, &honest);
    if (std::exchange(wants_checkpoint_, false)) MakeCheckpoint(&honest);
    while (!manifests_.empty()) Written(true);
  }

  // Names a checkpoint, and reports all parts of it.
  void MakeCheckpoint(FuzzInput* honest) {
    named_ = step_ + 2;
    step_ = named_;
    v1::ShardReport report;
    report.set_checkpoint_named(named_);
    Collect([&] { Handle(streams_[0].id, report); });
    for (const uint32_t each : {0u, 1u}) {
      ReportCheckpoint(each, honest);
      protocol::PartToProto(PartOf(protocol::ShardPartName(each, coordinator_.term())),
                            report.mutable_part());
      Collect([&] { Handle(streams_[each].id, report); });
    }
  }

  static void CheckError(const absl::Status& status) {
    Check(!status.ok() && !status.message().empty(), "a refusal says something");
    Check(ValidText(status.message(), status.message().size()) == status.message(),
          "a refusal is UTF-8");
  }

  template <typename Event>
  void Collect(const Event& event) {
    effects_.clear();
    event();
    Check(effects_.size() < 1000, "an event has few effects");
    for (const CoordinatorEffect& effect : std::exchange(effects_, {})) {
      std::visit([this](const auto& one) { this->Take(one); }, effect);
    }
  }

  void Take(const AnswerJoin& answer) {
    const auto call = joins_.find(answer.token);
    Check(call != joins_.end(), "a call is answered once");
    const uint32_t rank = call->second;
    joins_.erase(call);
    if (!answer.grant.ok()) return CheckError(answer.grant.status());
    v1::JoinReply reply;
    protocol::GrantToProto(*answer.grant, &reply);
    const auto grant = protocol::GrantFromProto(Received(reply));
    Check(grant.ok() && grant->rank == rank, "a worker gets the rank that it wants");
    grants_[rank] = *grant;
  }
  void Take(const AnswerCheckpoint& answer) {
    Check(requests_.erase(answer.token) == 1, "a request is answered once");
    if (!answer.step.ok()) CheckError(answer.step.status());
  }
  void Take(const CommandShard& command) {
    const auto sent = Received(protocol::CommandToProto(command.sequence, command.command));
    const auto received = protocol::CommandFromProto(sent);
    Check(received.ok() && received->index() == command.command.index(),
          "a shard understands a command");
    const bool names = std::holds_alternative<protocol::NameCheckpoint>(command.command);
    wants_checkpoint_ = wants_checkpoint_ || names;
    for (auto& [shard, stream] : streams_) {
      if (stream.id == command.stream) stream.last_command = command.sequence;
    }
  }
  void Take(const RefuseShard& refusal) {
    CheckError(refusal.why);
    for (auto& [shard, stream] : streams_) {
      if (stream.id != refusal.stream) continue;
      coordinator_.ShardDetached(stream.id);
      stream = {};
    }
  }
  void Take(const WriteCheckpoint& write) {
    for (const protocol::CheckpointPart& part : write.manifest.parts) {
      Check(protocol::CheckPartNames(part).ok(), "a manifest lists files of its folder");
    }
    manifests_.push_back(write.manifest.step);
  }
  void Take(const DropCheckpoint& drop) { Check(drop.step > 0, "a dropped checkpoint has a step"); }
  void Take(const PersistRun& persist) {
    Check(persist.record.job_uid == options_.job_uid, "a record is of this run");
  }
  void Take(const AskParent& /*ask*/) { Check(false, "only a rack asks its parent"); }
  void Take(const LeaveParent& /*leave*/) { Check(false, "only a rack leaves its parent"); }
  void Take(const Notice& notice) { Check(!notice.text.empty(), "a notice says something"); }

  const CoordinatorOptions options_;
  absl::Time now_ = absl::UnixEpoch();
  Coordinator coordinator_;
  Coordinator::Effects effects_;
  JobHistory history_;
  uint64_t last_token_ = 0;
  ControlStreamId last_stream_ = 0;
  uint64_t starts_ = 0;
  uint64_t step_ = 0;
  uint64_t named_ = 0;
  bool wants_checkpoint_ = false;
  std::map<JoinToken, uint32_t> joins_;  // Waiting calls and the ranks that they want.
  std::set<CheckpointToken> requests_;   // Waiting calls.
  std::map<uint32_t, protocol::JoinGrant> grants_;
  std::map<uint32_t, Stream> streams_;  // By shard.
  std::vector<uint64_t> manifests_;     // Steps of the manifests to write.
};

}  // namespace sluice::server
