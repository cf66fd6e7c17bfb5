// SPDX-License-Identifier: Apache-2.0
// The property of a shard's handlers: any sequence of requests on any streams gives replies that
// their receivers can parse, stays within the limit of memory, and lets no sender write a part of a
// checkpoint that is not its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/exchange_messages.h"
#include "server/rpc/checkpoint_store.h"
#include "tests/fuzz/message_input.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {

template <typename M>
M Parsed(const grpc::ByteBuffer& bytes) {
  M message;
  grpc::ByteBuffer copy = bytes;
  Check(grpc::GenericDeserialize<grpc::ProtoBufferReader, M>(&copy, &message).ok(),
        "the receiver can parse a message");
  return message;
}

// A shard of three ranks. `kind` chooses how the job exchanges gradients.
class ShardProperty {
 public:
  explicit ShardProperty(uint8_t kind) : shard_(*Shard::Create(OptionsOf(kind))) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) Reopen(rank);
  }

  // Carries out the next event of the input.
  void Act(FuzzInput* input) {
    now_ += absl::Milliseconds(1);
    const uint8_t event = input->Byte();
    const uint32_t rank = event / 8 % kRanks;
    switch (event % 8) {
      case 0:
      case 1:
      case 2:
        return Exchange(rank, event / 64 % 2, input);
      case 3:
        return PutPart(rank, input);
      case 4:
        shard_->StreamClosed(streams_[rank].id);
        return Reopen(rank);
      case 5:
        now_ += absl::Milliseconds(input->Short());
        return Take(shard_->Tick(now_));
      case 6:
        return Command(event / 8 % 4, input);
      default:
        return RunStep();
    }
  }

 private:
  static constexpr uint32_t kRanks = 3;
  static constexpr uint64_t kPartBytesMax = 1 << 20;

  struct Stream {
    StreamId id = 0;
    protocol::Sender sender{};  // The sender in the stream's last message that named one.
  };

  static ShardOptions OptionsOf(uint8_t kind) {
    ShardOptions options = SmallShard(kRanks, (kind & 1) != 0 ? "topk:50%/ef" : "none");
    options.max_memory = 64 << 10;
    options.window_bytes = 1 << 10;
    switch (kind / 2 % 6) {
      case 0:
        break;
      case 1:
        options.exchange.quorum = 2;
        options.exchange.straggler_timeout = absl::Milliseconds(20);
        break;
      case 2:
        options.exchange.membership = job::Membership::kElastic;
        break;
      case 3:
        options.replay_bytes = 8 << 10;
        options.replay = true;
        break;
      default:
        options.exchange.mode = kind / 2 % 6 == 4 ? job::Mode::kAsync : job::Mode::kSsp;
        options.exchange.staleness = kind / 2 % 6 == 4 ? 0 : 2;
        options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
        options.parameters_agree = false;
    }
    return options;
  }

  void Reopen(uint32_t rank) { streams_[rank] = {.id = ++last_stream_, .sender = {}}; }

  protocol::Sender SenderOf(uint32_t rank) const {
    return {.job_uid = kJob,
            .term = shard_->options().term,
            .rank = rank,
            .incarnation = 100 + rank,
            .generation = generation_};
  }

  std::shared_ptr<const protocol::ExchangeRequest> HonestExchange(uint32_t rank,
                                                                  uint32_t bundle) const {
    auto exchange = std::make_shared<protocol::ExchangeRequest>(
        Contribution(rank, shard_->open_step(), bundle, 1.0F));
    exchange->sender = SenderOf(rank);
    exchange->base_version = shard_->open_step();
    return exchange;
  }

  void Exchange(uint32_t rank, uint32_t bundle, FuzzInput* input) {
    Stream& stream = streams_[rank];
    const auto exchange = HonestExchange(rank, bundle);
    auto message =
        NextMessage(input, Parsed<v1::ExchangeRequest>(protocol::ExchangeRequestToBytes(
                               exchange, &exchange->sender, /*ready_ns=*/1, /*link=*/nullptr)));
    if (!message.has_value() || message->probe()) return;
    absl::StatusOr<protocol::ExchangeRequest> request =
        protocol::ExchangeRequestFromProto(stream.sender, &*message);
    if (!request.ok()) return;
    stream.sender = request->sender;
    Take(shard_->Handle(stream.id, *std::move(request), now_));
  }

  // Contributes as honest workers do, which moves the job to its next step.
  void RunStep() {
    FuzzInput honest(nullptr, 0);
    for (uint32_t bundle = 0; bundle < shard_->bundles(); ++bundle) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) Exchange(rank, bundle, &honest);
    }
  }

  // Makes the checks of CheckpointStore::PutPart.
  void PutPart(uint32_t rank, FuzzInput* input) {
    v1::PutPartRequest honest;
    protocol::SenderToProto(SenderOf(rank), honest.mutable_sender());
    protocol::CheckpointPart own;
    own.term = shard_->options().term;
    own.step = shard_->open_step() + 1;
    own.name = protocol::WorkerPartName(rank, own.term);
    own.bytes = 100;
    protocol::PartToProto(own, honest.mutable_part());
    const auto message = NextMessage(input, honest);
    if (!message.has_value()) return;
    const protocol::Sender sender = protocol::SenderFromProto(message->sender());
    protocol::CheckpointPart part = protocol::CheckedPartFromProto(message->part());
    part.file.clear();
    if (!CheckPut(sender, part, kPartBytesMax).ok()) return;
    Check(protocol::CheckPartNames(part).ok(), "a part is a file of the checkpoint's folder");
    Check(part.bytes <= kPartBytesMax, "a part is not too large");
    Check(part.name == protocol::WorkerPartName(sender.rank, sender.term) || sender.rank == 0,
          "a worker writes its own parts");
    if (!shard_->FenceReason(sender).empty() || !shard_->CheckPartStep(part.step).ok()) return;
    Check(sender.rank < kRanks && sender.incarnation == 100 + sender.rank,
          "only the holder of a rank writes its parts");
  }

  // Carries out a command of the coordinator, which a shard trusts.
  void Command(uint32_t command, FuzzInput* input) {
    const uint8_t value = input->Byte();
    switch (command) {
      case 0:
        return shard_->ReleaseResults(value);
      case 1: {
        const uint64_t step = shard_->NameCheckpoint(value);
        // A checkpoint that results have announced stays, even if its step is lower.
        Check(step >= value || shard_->NameCheckpoint(value + 1) == step,
              "a checkpoint is not before the step that was asked for");
        return;
      }
      case 2: {
        const std::vector<uint64_t> members = {100, 101, 102};
        Check(shard_->SetMembership(++generation_, members).ok(), "generations rise");
        return;
      }
      default:
        if (value == 255) Take(shard_->End("the job has ended"));
    }
  }

  void Take(const std::vector<ShardEffect>& effects) {
    Check(effects.size() < 1000, "an event has few effects");
    for (const ShardEffect& effect : effects) {
      if (const auto* const reply = std::get_if<SendReply>(&effect)) TakeReply(*reply);
      if (const auto* const replaced = std::get_if<StreamReplaced>(&effect)) {
        for (auto& [rank, stream] : streams_) {
          if (stream.id != replaced->stream) continue;
          shard_->StreamClosed(stream.id);
          Reopen(rank);
        }
      }
    }
    const ShardStats stats = shard_->Stats();
    Check(stats.held_bytes + stats.log_bytes <= shard_->options().max_memory,
          "a shard keeps within its memory");
  }

  void TakeReply(const SendReply& reply) const {
    Check(reply.stream > 0 && reply.stream <= last_stream_, "a reply goes to a stream");
    auto message = Parsed<v1::ExchangeReply>(
        protocol::ExchangeReplyToBytes(reply.answer, /*server_incarnation=*/5, /*ready_ns=*/1));
    const absl::StatusOr<protocol::ExchangeReply> received =
        protocol::ExchangeReplyFromProto(&message);
    Check(received.ok() && received->outcome == reply.answer->outcome,
          "a worker understands a reply");
    if (received->outcome != protocol::Outcome::kResult) return;
    for (const std::string& frame : received->results) {
      Check(!frame.empty() || received->record.n == 0, "a result has frames");
    }
  }

  const std::unique_ptr<Shard> shard_;
  absl::Time now_ = absl::UnixEpoch();
  uint32_t generation_ = 1;
  StreamId last_stream_ = 0;
  std::map<uint32_t, Stream> streams_;  // By the rank that uses the stream if it is honest.
};

}  // namespace sluice::server
