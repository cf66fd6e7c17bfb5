// SPDX-License-Identifier: Apache-2.0
#include "relay/weights_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
#include "follow/rpc/weights_relay.h"
#include "follow/rpc/weights_service.h"
#include "net/grpc/steady_deadline.h"
#include "server/rpc/builder_limits.h"
#include "server/rpc/guarded_port.h"
#include "server/shard/descriptor_need.h"

namespace sluice::relay {
namespace {

// Followers send only small requests.
constexpr size_t kRequestBytesMax = 1 << 20;
// Time for followers to receive the last version.
constexpr absl::Duration kEndPatience = absl::Seconds(10);
constexpr absl::Duration kCallsPatience = absl::Seconds(1);
constexpr uint64_t kFiles = 8;

class GrpcWeightsServer final : public WeightsServer {
 public:
  GrpcWeightsServer(WeightsServerOptions options, const Clock* clock, Logger logger)
      : options_(std::move(options)), clock_(clock), logger_(std::move(logger)) {}
  ~GrpcWeightsServer() override {
    if (server_ == nullptr) return;
    port_->Stop();
    server_->Shutdown(net::SteadyDeadline(kCallsPatience));
    server_->Wait();
  }

  absl::Status Start() {
    absl::StatusOr<std::unique_ptr<follow::WeightsRelay>> relay =
        follow::WeightsRelay::Start({.address = options_.upstream,
                                     .transport = options_.transport,
                                     .followers_max = options_.followers_max,
                                     .patience = options_.patience},
                                    clock_, logger_);
    if (!relay.ok()) return relay.status();
    relay_ = *std::move(relay);
    service_ = std::make_unique<follow::WeightsService>(
        relay_->hub(), [this] { return relay_->Describe(); }, options_.own_transport, clock_);
    return Listen();
  }

  int port() const override { return port_->port(); }
  std::string job_name() const override { return relay_->Describe()->job; }
  std::optional<absl::Status> Outcome() override;
  follow::FollowerFigures figures() const override { return relay_->hub()->figures(); }

 private:
  absl::Status Listen();

  const WeightsServerOptions options_;
  const Clock* const clock_;
  const Logger logger_;
  std::unique_ptr<follow::WeightsRelay> relay_;
  std::unique_ptr<follow::WeightsService> service_;
  std::unique_ptr<server::GuardedPort> port_;  // Outlives server_.
  std::unique_ptr<grpc::Server> server_;
  std::optional<absl::Status> end_;
  absl::Time end_by_;
};

absl::Status GrpcWeightsServer::Listen() {
  const server::DescriptorNeed need{
      .followers = options_.followers_max, .http = options_.http_connections, .files = kFiles};
  const uint64_t descriptors = DescriptorLimit();
  if (absl::Status enough = server::CheckDescriptors(need, descriptors); !enough.ok()) {
    return enough;
  }
  absl::StatusOr<std::unique_ptr<server::GuardedPort>> port = server::GuardedPort::Open(
      options_.listen, server::LimitsOf(need, descriptors), server::kKeepalive, logger_);
  if (!port.ok()) return port.status();
  port_ = *std::move(port);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  port_->AddTo(&builder, options_.own_transport);
  builder.RegisterService(service_.get());
  server::LimitCalls(&builder, kRequestBytesMax);
  server::RemoveReflection(&builder);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("gRPC cannot serve ", options_.listen));
  }
  port_->Start();
  logger_.Info("serves followers of job ", job_name(), " on port ", this->port());
  return absl::OkStatus();
}

std::optional<absl::Status> GrpcWeightsServer::Outcome() {
  if (!end_.has_value()) {
    end_ = relay_->Outcome();
    if (!end_.has_value()) return std::nullopt;
    end_by_ = clock_->Now() + kEndPatience;
  }
  if (!relay_->drained() && clock_->Now() < end_by_) return std::nullopt;
  return end_;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightsServer>> WeightsServer::Start(WeightsServerOptions options,
                                                                    const Clock* clock,
                                                                    Logger logger) {
  const absl::Status may_listen =
      options.own_transport->MayListen(options.listen, options.allow_anonymous);
  if (!may_listen.ok()) return may_listen;
  for (const std::string& warning : {options.own_transport->WarningFor(options.listen),
                                     options.own_transport->ListenWarning(options.listen)}) {
    if (!warning.empty()) logger.Warning(warning);
  }
  auto server = std::make_unique<GrpcWeightsServer>(std::move(options), clock, std::move(logger));
  if (absl::Status started = server->Start(); !started.ok()) return started;
  return server;
}

}  // namespace sluice::relay
