// SPDX-License-Identifier: Apache-2.0
// Tests servers and sessions with TLS and tokens: which clients are admitted, which are refused,
// and with which error messages.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "server/rpc/server.h"
#include "sluice/v1/checkpoint_store.pb.h"
#include "sluice/v1/coordinator.grpc.pb.h"
#include "sluice/v1/parameter_shard.pb.h"
#include "sluice/v1/shard_control.pb.h"
#include "sluice/v1/weights.pb.h"
#include "tests/net/grpc/certificates.h"
#include "tests/temporary_folder.h"
#include "worker/rpc/remote_client.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(60);
const std::string kToken(32, 'a');
const std::string kNewToken(32, 'b');

class SecurityTest : public ::testing::Test {
 protected:
  SecurityTest() : ca_(folder_.path(), "ca"), other_ca_(folder_.path(), "other-ca") {
    ca_.Certify("server");
    ca_.Certify("client");
    ca_.Certify("elsewhere", {.subject_alt_name = "DNS:elsewhere,IP:10.0.0.1"});
    other_ca_.Certify("stranger");
    folder_.Write("token", kToken + "\n");
    folder_.Write("wrong-token", std::string(32, 'x'));
  }
  // Shard 0 is destroyed last, because it waits a while for open streams.
  void TearDown() override {
    while (!servers_.empty()) servers_.pop_back();
  }

  // Returns options with these file names in the folder. An empty name means no file.
  net::TransportOptions Files(const std::string& certificate, const std::string& ca,
                              const std::string& token = "") const {
    net::TransportOptions files;
    if (!certificate.empty()) {
      files.tls_cert = folder_.Path(certificate + ".pem");
      files.tls_key = folder_.Path(certificate + ".key");
    }
    if (!ca.empty()) files.tls_ca = folder_.Path(ca + ".pem");
    if (!token.empty()) files.token_file = folder_.Path(token);
    return files;
  }
  static std::shared_ptr<const net::Transport> Open(const net::TransportOptions& files) {
    const auto transport = net::Transport::Open(files, Logger("test"));
    Check(transport.ok(), transport.status().message());
    return *transport;
  }

  static job::JobSpec Job(uint32_t shards) {
    job::JobSpec job;
    job.name = "test";
    job.hash = 9;
    job.workers = 1;
    job.shards = shards;
    job.exchange.compression.layout = {.chunk_elements = 4, .bundle_elements = 4};
    job.exchange.compression.uplink.codec = compress::CodecId::kNone;
    job.exchange.compression.downlink.codec = compress::CodecId::kNone;
    job.exchange.compression.min_elements = 0;
    job.server.heartbeat_interval = absl::Milliseconds(50);
    // The lease is so long that a busy machine causes no loss.
    job.server.lease_timeout = absl::Hours(1);
    return job;
  }
  void StartServer(uint32_t shard, uint32_t shards,
                   std::shared_ptr<const net::Transport> transport) {
    absl::StatusOr<std::unique_ptr<server::Server>> server =
        server::Server::Start({.job = Job(shards),
                               .shard = shard,
                               .listen = "127.0.0.1:0",
                               .coordinator = shard == 0 ? "" : servers_[0]->address(),
                               .transport = std::move(transport),
                               .log = log_,
                               .software_version = "1",
                               .job_uid = 77},
                              &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_.push_back(*std::move(server));
  }
  // Asks a server for its status on a separate connection. Returns the outcome.
  grpc::Status Ask(const std::shared_ptr<const net::Transport>& transport) const {
    const auto stub = v1::Coordinator::NewStub(transport->DialForQuestions(servers_[0]->address()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::GetStatusReply reply;
    return stub->GetStatus(&context, {}, &reply);
  }
  // Returns the client's error message. Empty if the client was admitted.
  std::string HandshakeError(const net::TransportOptions& server,
                             const net::TransportOptions& client) {
    StartServer(0, 1, Open(server));
    const std::shared_ptr<const net::Transport> transport = Open(client);
    const grpc::Status status = Ask(transport);
    servers_.pop_back();
    if (status.ok()) return "";
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    return transport->Explain(status.error_message());
  }

  const TemporaryFolder folder_;
  net::TestCa ca_;
  net::TestCa other_ca_;
  SteadyClock clock_;
  LogOptions log_;
  std::vector<std::unique_ptr<server::Server>> servers_;
};

TEST_F(SecurityTest, EachSideIsToldWhatDoesNotFit) {
  const net::TransportOptions plain;
  const net::TransportOptions trusting = Files("", "ca");
  const net::TransportOptions mutual = Files("client", "ca");
  EXPECT_EQ(HandshakeError(plain, plain), "");
  EXPECT_EQ(HandshakeError(Files("server", ""), trusting), "");
  EXPECT_EQ(HandshakeError(Files("server", "ca"), mutual), "");
  EXPECT_EQ(HandshakeError(Files("server", ""), mutual), "");
  EXPECT_THAT(HandshakeError(plain, trusting), HasSubstr("this side uses TLS"));
  EXPECT_THAT(HandshakeError(Files("server", ""), plain),
              HasSubstr("if the server uses TLS, give --tls-ca"));
  EXPECT_THAT(HandshakeError(Files("server", "ca"), plain),
              HasSubstr("if the server uses TLS, give --tls-ca"));
  EXPECT_THAT(HandshakeError(Files("server", "ca"), trusting),
              HasSubstr("closed in the handshake"));
  EXPECT_THAT(HandshakeError(Files("server", "ca"), Files("stranger", "ca")),
              HasSubstr("closed in the handshake"));
  EXPECT_THAT(HandshakeError(Files("stranger", ""), trusting), HasSubstr("cannot be verified"));
  EXPECT_THAT(HandshakeError(Files("server", ""), Files("client", "")),
              HasSubstr("cannot be verified"));
  EXPECT_THAT(HandshakeError(Files("elsewhere", ""), trusting),
              HasSubstr("is not for this address"));
}

// Returns the methods of all services, as "/package.Service/Method".
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods = {"/grpc.health.v1.Health/Check", "/no.such.Service/Method"};
  for (const google::protobuf::FileDescriptor* file :
       {v1::JoinRequest::descriptor()->file(), v1::ExchangeRequest::descriptor()->file(),
        v1::ShardReport::descriptor()->file(), v1::PutPartRequest::descriptor()->file(),
        v1::FollowRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor* const service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        methods.push_back(absl::StrCat("/", service->full_name(), "/", service->method(j)->name()));
      }
    }
  }
  return methods;
}

// Sends one empty message, whatever message the method expects.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  grpc::Slice nothing("", 0);
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

TEST_F(SecurityTest, NoMethodIsToBeHadWithoutTheToken) {
  StartServer(0, 1, Open(Files("", "", "token")));
  const std::vector<std::string> methods = AllMethods();
  EXPECT_GE(methods.size(), 14u);
  const std::shared_ptr<grpc::Channel> without =
      net::Transport::Plain()->Dial(servers_[0]->address());
  const std::shared_ptr<grpc::Channel> wrong =
      Open(Files("", "", "wrong-token"))->Dial(servers_[0]->address());
  for (const std::string& method : methods) {
    const grpc::Status refused = Call(without, method);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
    EXPECT_THAT(refused.error_message(), HasSubstr("give --token-file")) << method;
    const grpc::Status mistaken = Call(wrong, method);
    EXPECT_EQ(mistaken.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
    EXPECT_THAT(mistaken.error_message(), HasSubstr("is not this job's")) << method;
    EXPECT_THAT(mistaken.error_message(), Not(HasSubstr("xxx"))) << method;
  }
  EXPECT_TRUE(Call(Open(Files("", "", "token"))->Dial(servers_[0]->address()),
                   "/sluice.v1.Coordinator/GetStatus")
                  .ok());
}

// A session with a single rank, so the mean of a gradient equals the gradient.
class Training {
 public:
  Training(const job::JobSpec& job, const std::string& coordinator,
           std::shared_ptr<const net::Transport> transport)
      : client_(worker::MakeRemoteClient(Options(job, coordinator, std::move(transport)))) {}

  absl::Status Join() {
    const auto joined =
        client_->Join({{.name = "a", .shape = {8}, .strides = {}}}, std::string(32, 'p'));
    if (joined.ok()) session_ = joined->session;
    return joined.status();
  }
  // Call the methods below after Join.
  void Step() {
    const std::vector<float> gradient(8, 0.25F);
    ASSERT_TRUE(session_->Submit(0, gradient).ok());
    const absl::StatusOr<worker::StepResult> result = session_->Wait();
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<float> mean(8);
    ASSERT_TRUE(session_->Apply(0, absl::MakeSpan(mean)).ok());
    EXPECT_EQ(mean, gradient);
  }
  absl::Status Leave() { return session_->Leave(); }

 private:
  static worker::RemoteSessionOptions Options(const job::JobSpec& job,
                                              const std::string& coordinator,
                                              std::shared_ptr<const net::Transport> transport) {
    worker::RemoteSessionOptions options = worker::OptionsFromJob(job, coordinator, 0);
    options.software_version = "1";
    options.transport = std::move(transport);
    return options;
  }

  const std::unique_ptr<worker::JobClient> client_;
  worker::Session* session_ = nullptr;
};

// Every role's client calls every method of Sluice's services. The table of methods, and nothing
// else, must decide which calls are refused.
TEST_F(SecurityTest, ARoleMayCallTheMethodsOfItsRowOnly) {
  std::string lines;
  for (const auto& entry : net::NamesOf(net::Role{})) {
    const std::string token = absl::StrCat(entry.name, std::string(16, '-'));
    folder_.Write(std::string(entry.name), token);
    absl::StrAppend(&lines, entry.name, " token ", token, "\n");
  }
  net::TransportOptions files = Files("", "", "server");
  files.role_file = folder_.Write("roles", lines);
  StartServer(0, 1, Open(files));
  size_t methods = 0;
  for (const std::string& path : AllMethods()) {
    const std::optional<net::Method> method = net::FindMethod(path);
    const bool ours = absl::StartsWith(path, "/sluice.");
    ASSERT_EQ(method.has_value(), ours) << path << " has no row in the table of methods";
    if (!ours) continue;
    ++methods;
    for (const auto& entry : net::NamesOf(net::Role{})) {
      const grpc::Status status =
          Call(Open(Files("", "", std::string(entry.name)))->Dial(servers_[0]->address()), path);
      const bool refused = status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
      EXPECT_NE(refused, net::TraitsOf(*method).roles.value().Has(entry.value))
          << path << " as " << entry.name << ": " << status.error_message();
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << path;
    }
    EXPECT_EQ(Call(net::Transport::Plain()->Dial(servers_[0]->address()), path).error_code(),
              grpc::StatusCode::UNAUTHENTICATED)
        << path;
  }
  EXPECT_EQ(methods, std::size(net::kMethods)) << "the server does not offer all methods";
}

TEST_F(SecurityTest, ARequestForACheckpointIsLoggedWithItsSender) {
  Mutex mutex;
  std::vector<std::string> lines;
  log_.sink = [&](LogLevel, absl::string_view, absl::string_view text) {
    MutexLock lock(&mutex);
    lines.emplace_back(text);
  };
  StartServer(0, 1, Open(Files("", "", "token")));
  const std::shared_ptr<grpc::Channel> channel =
      Open(Files("", "", "token"))->Dial(servers_[0]->address());
  EXPECT_EQ(Call(channel, "/sluice.v1.Coordinator/RequestCheckpoint").error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  const auto stub = v1::Coordinator::NewStub(channel);
  v1::RequestCheckpointRequest request;
  request.set_job_name("other");
  grpc::ClientContext context;
  v1::RequestCheckpointReply reply;
  EXPECT_EQ(stub->RequestCheckpoint(&context, request, &reply).error_code(),
            grpc::StatusCode::NOT_FOUND);
  MutexLock lock(&mutex);
  EXPECT_THAT(lines, Contains(MatchesRegex("audit: 127.0.0.1:[0-9]+ requested a checkpoint")));
  EXPECT_THAT(lines, Contains(MatchesRegex("audit: 127.0.0.1:[0-9]+ requested a checkpoint, which "
                                           "was refused: job test runs here, not other")));
}

// A server that stops requests a checkpoint first.
TEST_F(SecurityTest, AServerMayRequestACheckpointAndAWorkerMayNot) {
  folder_.Write("new-token", kNewToken);
  net::TransportOptions files = Files("", "", "token");
  files.role_file = folder_.Write(
      "roles", absl::StrCat("server token ", kToken, "\nworker token ", kNewToken, "\n"));
  StartServer(0, 1, Open(files));
  const auto request_with = [&](const std::string& token) {
    return Call(Open(Files("", "", token))->Dial(servers_[0]->address()),
                "/sluice.v1.Coordinator/RequestCheckpoint")
        .error_code();
  };
  EXPECT_EQ(request_with("new-token"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(request_with("token"), grpc::StatusCode::FAILED_PRECONDITION) << "the job keeps none";
}

TEST_F(SecurityTest, ANameInACertificateGivesARole) {
  ca_.Certify("watcher", {.subject_alt_name = "DNS:watcher.example"});
  net::TransportOptions files = Files("server", "ca");
  files.role_file = folder_.Write("roles", "observer name watcher.example\n");
  StartServer(0, 1, Open(files));
  const std::string address = servers_[0]->address();
  const std::shared_ptr<grpc::Channel> watcher = Open(Files("watcher", "ca"))->Dial(address);
  EXPECT_TRUE(Call(watcher, "/sluice.v1.Coordinator/GetStatus").ok());
  const grpc::Status refused = Call(watcher, "/sluice.v1.Coordinator/Leave");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(refused.error_message(),
            "/sluice.v1.Coordinator/Leave needs the role worker; the servers' --role-file gives "
            "this client observer");
  EXPECT_EQ(Call(Open(Files("client", "ca"))->Dial(address), "/sluice.v1.Coordinator/GetStatus")
                .error_code(),
            grpc::StatusCode::UNAUTHENTICATED)
      << "the certificate is of the right CA, but no line has its name";
}

TEST_F(SecurityTest, AWorkerTrainsWithTheRoleWorker) {
  folder_.Write("worker", "worker-token-0123456789");
  net::TransportOptions files = Files("", "", "token");
  files.role_file = folder_.Write(
      "roles", absl::StrCat("server token ", kToken, "\nworker token worker-token-0123456789\n"));
  for (uint32_t shard = 0; shard < 2; ++shard) StartServer(shard, 2, Open(files));
  Training refused(Job(2), servers_[0]->address(), Open(files));
  EXPECT_TRUE(absl::IsPermissionDenied(refused.Join())) << "a server is no worker";
  Training training(Job(2), servers_[0]->address(), Open(Files("", "", "worker")));
  const absl::Status joined = training.Join();
  ASSERT_TRUE(joined.ok()) << joined;
  training.Step();
  EXPECT_TRUE(training.Leave().ok());
}

TEST_F(SecurityTest, ATokenIsChangedInThreeStepsWithoutARefusal) {
  folder_.Write("client-token", kToken);
  StartServer(0, 1, Open(Files("", "", "token")));
  const std::shared_ptr<const net::Transport> client = Open(Files("", "", "client-token"));
  EXPECT_TRUE(Ask(client).ok());
  folder_.Write("token", kToken + "\n" + kNewToken);
  EXPECT_TRUE(Ask(client).ok());
  folder_.Write("client-token", kNewToken + "\n" + kToken);
  EXPECT_TRUE(Ask(client).ok());
  folder_.Write("token", kNewToken);
  EXPECT_TRUE(Ask(client).ok());
  folder_.Write("client-token", kToken);
  EXPECT_EQ(Ask(client).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(SecurityTest, AJobWithEverythingRunsWhileTheCertificateChanges) {
  const net::TransportOptions files = Files("server", "ca", "token");
  for (uint32_t shard = 0; shard < 2; ++shard) StartServer(shard, 2, Open(files));
  const std::shared_ptr<const net::Transport> client = Open(Files("client", "ca", "token"));
  Training training(Job(2), servers_[0]->address(), client);
  const absl::Status joined = training.Join();
  ASSERT_TRUE(joined.ok()) << joined;
  training.Step();
  ASSERT_TRUE(Ask(client).ok());
  // New connections get a certificate with a wrong name; the session's connections stay open. The
  // server's ports load a new certificate one after another, but each wait needs the expected
  // answer from only one of them.
  ca_.Certify("server", {.subject_alt_name = "DNS:elsewhere"});
  const absl::Time until = clock_.Now() + kPatience;
  const auto ends_with = [&](bool answered) {
    while (Ask(client).ok() != answered) {
      if (clock_.Now() >= until) return false;
      training.Step();
    }
    return true;
  };
  EXPECT_TRUE(ends_with(false)) << "the new certificate was never used";
  training.Step();
  ca_.Certify("server");
  EXPECT_TRUE(ends_with(true)) << "the old certificate was never used again";
  training.Step();
  EXPECT_TRUE(training.Leave().ok());
}

TEST_F(SecurityTest, AWorkerWithoutTheTokenIsToldAtOnce) {
  StartServer(0, 1, Open(Files("", "", "token")));
  Training training(Job(1), servers_[0]->address(), net::Transport::Plain());
  const absl::Status joined = training.Join();
  EXPECT_TRUE(absl::IsUnauthenticated(joined)) << joined;
  EXPECT_THAT(std::string(joined.message()), HasSubstr("give --token-file"));
}

TEST_F(SecurityTest, AShardOfAnotherJobIsRefusedAndSaysWhy) {
  StartServer(0, 2, Open(Files("", "", "token")));
  StartServer(1, 2, Open(Files("", "", "wrong-token")));
  std::optional<absl::Status> outcome;
  const absl::Time until = clock_.Now() + kPatience;
  while (!(outcome = servers_[1]->Outcome()).has_value() && clock_.Now() < until) {
  }
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(std::string(outcome->message()), HasSubstr("refuses this shard"));
}

TEST_F(SecurityTest, AServerLetsInAnybodyElsewhereThanOnLoopbackOnlyWhenAskedTo) {
  server::ServerOptions options{.job = Job(1), .listen = "0.0.0.0:0", .advertise = "127.0.0.1:0"};
  const auto refused = server::Server::Start(options, &clock_);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--allow-anonymous"));
  options.allow_anonymous = true;
  EXPECT_TRUE(server::Server::Start(options, &clock_).ok());
}

}  // namespace
}  // namespace sluice
