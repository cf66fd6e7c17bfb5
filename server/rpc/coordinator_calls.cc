// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/coordinator_calls.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/grpc/grpc_status.h"
#include "protocol/wire/shard_messages.h"

namespace sluice::server {

JoinToken CoordinatorCalls::AddJoin(JoinWaiter* waiter) {
  waiters_.emplace(++last_id_, waiter);
  return last_id_;
}

CheckpointToken CoordinatorCalls::AddRequest(CheckpointAnswer answer) {
  requests_.emplace(++last_id_, std::move(answer));
  return last_id_;
}

ControlStreamId CoordinatorCalls::AddStream(CommandOutput* output) {
  outputs_.emplace(++last_id_, output);
  return last_id_;
}

void CoordinatorCalls::Answer(const AnswerJoin& answer, absl::Time now) {
  const auto waiter = waiters_.find(answer.token);
  if (waiter == waiters_.end()) return;
  const absl::Status status = answer.grant.status();
  if (absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) {
    LogRefusal({.event = "worker_refused"},
               absl::StrCat("a worker was refused: ", status.message()), now);
  }
  waiter->second->Answer(answer.grant);
  waiters_.erase(waiter);
}

void CoordinatorCalls::Answer(const AnswerCheckpoint& answer) {
  const auto request = requests_.find(answer.token);
  if (request == requests_.end()) return;
  request->second(answer.step);
  requests_.erase(request);
}

void CoordinatorCalls::Send(const CommandShard& command) {
  const auto output = outputs_.find(command.stream);
  if (output == outputs_.end()) return;
  auto message = std::make_shared<const v1::ShardCommand>(
      protocol::CommandToProto(command.sequence, command.command));
  const size_t bytes = message->ByteSizeLong();
  output->second->Send(std::move(message), bytes);
}

void CoordinatorCalls::Refuse(const RefuseShard& refusal, absl::Time now) {
  LogRefusal({.event = "shard_refused"},
             absl::StrCat("a shard was refused: ", refusal.why.message()), now);
  const auto output = outputs_.find(refusal.stream);
  if (output != outputs_.end()) output->second->Close(net::ToGrpc(refusal.why));
}

void CoordinatorCalls::FailAll(absl::string_view reason) {
  for (const auto& [token, answer] : requests_) answer(absl::UnavailableError(reason));
  requests_.clear();
  for (const auto& [token, waiter] : waiters_) {
    waiter->Answer(absl::FailedPreconditionError(reason));
  }
  waiters_.clear();
}

void CoordinatorCalls::LogRefusal(const LogFields& kind, absl::string_view text, absl::Time now) {
  const std::optional<uint64_t> silent = refusals_[kind.event].Say(now);
  if (!silent.has_value()) return;
  logger_.Write(LogLevel::kWarning, kind,
                *silent == 0 ? std::string(text)
                             : absl::StrCat(text, " (and ", *silent,
                                            " more since the last line of this kind)"));
}

}  // namespace sluice::server
