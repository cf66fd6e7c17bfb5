// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/status_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::cli {

namespace {

// An asynchronous request, which may be in flight.
template <typename Reply>
class Question {
 public:
  ~Question() {
    if (context_ != nullptr) context_->TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // `call(context, queue)` must start the request.
  template <typename StartCall>
  void Ask(absl::Duration timeout, const StartCall& call) {
    if (context_ != nullptr) return;
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    reader_ = call(context_.get(), &queue_);
    reader_->Finish(&reply_, &status_, this);
  }

  // Error messages begin with `what`, which names the requested information.
  bool Wait(absl::Duration wait, absl::string_view what, const net::Transport& transport,
            absl::StatusOr<Reply>* answer) {
    if (context_ == nullptr) return false;
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(wait);
    if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return false;
    context_.reset();
    reader_.reset();
    if (status_.ok()) {
      *answer = std::exchange(reply_, {});
    } else {
      *answer = absl::Status(static_cast<absl::StatusCode>(status_.error_code()),
                             absl::StrCat(what, ": ", transport.Explain(status_.error_message())));
    }
    return true;
  }

 private:
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader_;
  Reply reply_;
  grpc::Status status_;
};

}  // namespace

struct StatusClient::State {
  // Opens a new connection. An existing channel would wait for gRPC's backoff after a refused
  // connection, and for longer if no thread polls the channel constantly.
  void Dial();

  std::string address;
  std::shared_ptr<const net::Transport> transport;
  bool lost = false;  // True if the last request could not reach a server.
  std::unique_ptr<v1::Coordinator::Stub> stub;
  Question<v1::GetStatusReply> status;
  Question<v1::RequestCheckpointReply> checkpoint;
};

void StatusClient::State::Dial() {
  stub = v1::Coordinator::NewStub(transport->DialForQuestions(address));
  lost = false;
}

StatusClient::StatusClient(const std::string& coordinator,
                           std::shared_ptr<const net::Transport> transport)
    : state_(std::make_unique<State>()) {
  state_->address = coordinator;
  state_->transport = std::move(transport);
  state_->Dial();
}

StatusClient::~StatusClient() = default;

void StatusClient::Ask(absl::Duration timeout) {
  if (state_->lost) state_->Dial();
  state_->status.Ask(timeout, [this](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return state_->stub->AsyncGetStatus(context, {}, queue);
  });
}

bool StatusClient::WaitForStatus(absl::Duration wait, absl::StatusOr<v1::GetStatusReply>* answer) {
  if (!state_->status.Wait(wait, absl::StrCat("no status from ", state_->address),
                           *state_->transport, answer)) {
    return false;
  }
  state_->lost = absl::IsUnavailable(answer->status());
  return true;
}

void StatusClient::AskCheckpoint(const std::string& job_name, absl::Duration timeout) {
  v1::RequestCheckpointRequest request;
  request.set_job_name(ValidText(job_name));
  if (state_->lost) state_->Dial();
  state_->checkpoint.Ask(timeout, [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return state_->stub->AsyncRequestCheckpoint(context, request, queue);
  });
}

bool StatusClient::WaitForCheckpoint(absl::Duration wait, absl::StatusOr<uint64_t>* answer) {
  absl::StatusOr<v1::RequestCheckpointReply> reply = absl::UnavailableError("");
  if (!state_->checkpoint.Wait(wait, absl::StrCat("no checkpoint from ", state_->address),
                               *state_->transport, &reply)) {
    return false;
  }
  if (reply.ok()) {
    *answer = reply->step();
  } else {
    *answer = reply.status();
  }
  return true;
}

}  // namespace sluice::cli
