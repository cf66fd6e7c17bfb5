#include "cli/status_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice {

struct StatusClient::State {
  std::string address;
  std::unique_ptr<v1::Coordinator::Stub> stub;
  grpc::CompletionQueue queue;
  // Of the question that is out.
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::GetStatusReply>> reader;
  v1::GetStatusReply reply;
  grpc::Status status;
};

StatusClient::StatusClient(const std::string& coordinator) : state_(std::make_unique<State>()) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A coordinator that is just starting is to be found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  state_->address = coordinator;
  state_->stub = v1::Coordinator::NewStub(
      grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments));
}

StatusClient::~StatusClient() {
  if (state_->context != nullptr) state_->context->TryCancel();
  state_->queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (state_->queue.Next(&tag, &ok)) {
  }
}

void StatusClient::Ask(absl::Duration timeout) {
  if (state_->context != nullptr) return;
  state_->context = std::make_unique<grpc::ClientContext>();
  state_->context->set_deadline(std::chrono::system_clock::now() +
                                absl::ToChronoMilliseconds(timeout));
  state_->reader = state_->stub->AsyncGetStatus(state_->context.get(), {}, &state_->queue);
  state_->reader->Finish(&state_->reply, &state_->status, this);
}

bool StatusClient::Take(absl::Duration wait, absl::StatusOr<v1::GetStatusReply>* answer) {
  if (state_->context == nullptr) return false;
  void* tag = nullptr;
  bool ok = false;
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(wait);
  if (state_->queue.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) {
    return false;
  }
  state_->context.reset();
  state_->reader.reset();
  if (state_->status.ok()) {
    *answer = std::exchange(state_->reply, {});
  } else {
    *answer = absl::Status(
        static_cast<absl::StatusCode>(state_->status.error_code()),
        absl::StrCat("no status from ", state_->address, ": ", state_->status.error_message()));
  }
  return true;
}

}  // namespace sluice
