// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/answer_streams.h"

#include "absl/strings/str_cat.h"
#include "protocol/wire/exchange_messages.h"

namespace sluice::server {

StreamId AnswerStreams::Open(AnswerOutput* output) {
  outputs_.emplace(++last_stream_, output);
  output->LimitBytes(bytes_max_);
  return last_stream_;
}

std::optional<uint32_t> AnswerStreams::RankOf(StreamId stream) const {
  const auto rank = ranks_.find(stream);
  return rank == ranks_.end() ? std::nullopt : std::optional<uint32_t>(rank->second);
}

void AnswerStreams::LimitBytes(uint64_t bytes) {
  bytes_max_ = bytes;
  for (const auto& [stream, output] : outputs_) output->LimitBytes(bytes);
}

void AnswerStreams::Send(StreamId stream,
                         const std::shared_ptr<const protocol::ExchangeReply>& answer,
                         uint64_t incarnation, absl::Time now) {
  const auto output = outputs_.find(stream);
  if (output == outputs_.end()) return;
  if (answer != last_answer_) {
    last_bytes_ = std::make_shared<const grpc::ByteBuffer>(protocol::ExchangeReplyToBytes(
        answer, incarnation, static_cast<uint64_t>(absl::ToUnixNanos(now))));
    last_answer_ = answer;
  }
  output->second->Send(last_bytes_, last_bytes_->Length());
}

void AnswerStreams::ForgetAnswer() {
  last_answer_.reset();
  last_bytes_.reset();
}

void AnswerStreams::Close(StreamId stream, const grpc::Status& status) {
  const auto output = outputs_.find(stream);
  if (output != outputs_.end()) output->second->Close(status);
}

void AnswerStreams::EndReplaced(const StreamReplaced& replaced) {
  Close(replaced.stream,
        {grpc::StatusCode::ABORTED,
         absl::StrCat("a newer stream has taken over rank ", replaced.rank, "; connect again")});
}

void AnswerStreams::CloseAll(const grpc::Status& status) {
  for (const auto& [stream, output] : outputs_) output->Close(status);
}

}  // namespace sluice::server
