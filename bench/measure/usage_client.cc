// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/usage_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "sluice/v1/parameter_shard.grpc.pb.h"

namespace sluice::bench {

struct UsageClient::Server {
  // Opens a new connection.
  void Dial();
  grpc::Status Ask(absl::Duration timeout, v1::GetUsageReply* reply) const;

  std::string address;
  std::shared_ptr<const net::Transport> transport;
  std::unique_ptr<v1::ParameterShard::Stub> stub;
};

void UsageClient::Server::Dial() {
  stub = v1::ParameterShard::NewStub(transport->DialForQuestions(address));
}

grpc::Status UsageClient::Server::Ask(absl::Duration timeout, v1::GetUsageReply* reply) const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  return stub->GetUsage(&context, {}, reply);
}

namespace {

// Ignores stages that this program does not know.
void AddStages(const v1::GetUsageReply& reply, protocol::StageSeconds* seconds) {
  for (const v1::StageUsage& usage : reply.stages()) {
    for (const protocol::Stage stage : protocol::kServerStages) {
      if (usage.stage() != protocol::ToString(stage)) continue;
      (*seconds)[static_cast<size_t>(stage)] += usage.processor_seconds();
    }
  }
}

}  // namespace

UsageClient::UsageClient(const std::vector<std::string>& addresses,
                         const std::shared_ptr<const net::Transport>& transport) {
  for (const std::string& address : addresses) {
    auto server = std::make_unique<Server>();
    server->address = address;
    server->transport = transport;
    server->Dial();
    servers_.push_back(std::move(server));
  }
}

UsageClient::~UsageClient() = default;

absl::StatusOr<ServersUsage> UsageClient::Ask(absl::Duration timeout) {
  ServersUsage usage;
  for (const std::unique_ptr<Server>& server : servers_) {
    v1::GetUsageReply reply;
    grpc::Status status = server->Ask(timeout, &reply);
    // Between two requests, this process does not answer a server's keepalive. The server therefore
    // closes the connection during a long exchange, or while this process is stopped.
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      server->Dial();
      status = server->Ask(timeout, &reply);
    }
    if (!status.ok()) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          absl::StrCat("no answer from the server at ", server->address, ": ",
                                       server->transport->Explain(status.error_message())));
    }
    usage.cpu_seconds += reply.processor_seconds();
    usage.peak_rss_bytes = std::max(usage.peak_rss_bytes, reply.peak_rss_bytes());
    AddStages(reply, &usage.stages);
  }
  return usage;
}

}  // namespace sluice::bench
