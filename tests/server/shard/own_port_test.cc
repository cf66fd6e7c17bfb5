// SPDX-License-Identifier: Apache-2.0
// Tests /livez and the probes of the process's own gRPC port.
#include "server/own_port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/http/server_pages.h"
#include "server/rpc/server.h"
#include "tests/net/grpc/certificates.h"
#include "tests/temporary_folder.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Status kDeaf = absl::UnavailableError("says nothing");

TEST(PortHealth, TwoFailuresRunningAreTrouble) {
  PortHealth health;
  EXPECT_THAT(health.trouble(), IsEmpty());
  health.Note(kDeaf);
  EXPECT_THAT(health.trouble(), IsEmpty());
  health.Note(absl::OkStatus());
  health.Note(kDeaf);
  EXPECT_THAT(health.trouble(), IsEmpty());
  // A probe that could not be sent must count neither as a success nor as a failure.
  health.Note(absl::ResourceExhaustedError("no descriptor"));
  EXPECT_THAT(health.trouble(), IsEmpty());
  health.Note(kDeaf);
  EXPECT_THAT(health.trouble(), HasSubstr("says nothing"));
  health.Note(absl::ResourceExhaustedError("no descriptor"));
  EXPECT_THAT(health.trouble(), HasSubstr("2 times in a row"));
  health.Note(absl::OkStatus());
  EXPECT_THAT(health.trouble(), IsEmpty());
}

// A port of this process. The kernel accepts its connections, but the process never serves them.
class DeafPort {
 public:
  DeafPort() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    Check(::bind(fd_, name, size) == 0 && ::listen(fd_, 1) == 0, "a test can listen");
    Check(::getsockname(fd_, name, &size) == 0, "a socket has a name");
    port_ = ntohs(address.sin_port);
  }
  ~DeafPort() { ::close(fd_); }
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

net::HttpAnswer Livez(const OwnPort& own) {
  return HealthPage("/livez", nullptr, [&] { return own.trouble(); });
}

void AwaitStatus(const OwnPort& own, int status) {
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Livez(own).status != status && std::chrono::steady_clock::now() < late) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(Livez(own).status, status) << Livez(own).body;
}

TEST(OwnPort, APortThatNothingAcceptsFromIsDead) {
  const DeafPort deaf;
  // There are more probes than the backlog holds, so some connections are not even established.
  const OwnPort own(net::PortProbe("127.0.0.1:0", deaf.port(), /*tls=*/false),
                    {.pause = absl::ZeroDuration(), .patience = absl::Milliseconds(20)});
  AwaitStatus(own, 503);
  EXPECT_EQ(Livez(own).body.find(absl::StrCat("the gRPC port 127.0.0.1:", deaf.port(), ": ")), 0u);
  // The port must count as healthy again once it is served.
  std::atomic<bool> stop = false;
  std::thread accepts([&] {
    while (!stop) {
      const int fd = ::accept(deaf.fd(), nullptr, nullptr);
      if (fd >= 0) ::close(fd);
    }
  });
  AwaitStatus(own, 200);
  stop = true;
  ::shutdown(deaf.fd(), SHUT_RDWR);
  accepts.join();
}

TEST(OwnPort, APortThatIsGoneIsDead) {
  int port = 0;
  {
    const DeafPort closed;
    port = closed.port();
  }
  const OwnPort own(net::PortProbe("localhost:0", port, /*tls=*/false),
                    {.pause = absl::ZeroDuration(), .patience = absl::Seconds(5)});
  AwaitStatus(own, 503);
  EXPECT_THAT(Livez(own).body, HasSubstr("refused the connection"));
}

class OwnPortOfServer : public ::testing::Test {
 protected:
  // Returns the log output of gRPC and of the server while the port is probed a few times.
  std::string AskAServer(const std::string& listen, const net::TransportOptions& files) {
    const auto transport = net::Transport::Open(files, Logger("test", {}));
    Check(transport.ok(), transport.status().message());
    ServerOptions options{.listen = listen,
                          .advertise = "127.0.0.1:0",
                          .transport = *transport,
                          .allow_anonymous = true,
                          .log = {.lowest = LogLevel::kError},
                          .software_version = "1",
                          .job_uid = 7};
    options.job.name = "test";
    options.job.workers = 1;
    options.job.shards = 1;
    const auto server = Server::Start(std::move(options), &clock_);
    Check(server.ok(), server.status().message());
    const net::PortProbe probe(listen, (*server)->port(), files.tls());
    const std::atomic<bool> stop = false;
    ::testing::internal::CaptureStderr();
    for (int asked = 0; asked < 10; ++asked) {
      const absl::Status answer = probe.Ask(absl::Seconds(30), stop);
      EXPECT_TRUE(answer.ok()) << listen << ": " << answer;
    }
    // The output is read before the server ends, because gRPC logs a handshake that is interrupted
    // by the end of the server.
    return ::testing::internal::GetCapturedStderr();
  }

  SteadyClock clock_;
  TemporaryFolder folder_;
};

TEST_F(OwnPortOfServer, AnswersOnEveryKindOfAddressWithoutAWordInTheLog) {
  for (const char* listen : {"127.0.0.1:0", "localhost:0", "0.0.0.0:0"}) {
    EXPECT_THAT(AskAServer(listen, {}), IsEmpty()) << listen;
  }
}

TEST_F(OwnPortOfServer, AnswersWithTlsAndMutualTlsWithoutAWordInTheLog) {
  net::TestCa ca(folder_.path(), "ca");
  ca.Certify("own");
  net::TransportOptions files;
  files.tls_cert = absl::StrCat(folder_.path(), "/own.pem");
  files.tls_key = absl::StrCat(folder_.path(), "/own.key");
  EXPECT_THAT(AskAServer("127.0.0.1:0", files), IsEmpty());
  files.tls_ca = ca.path();
  EXPECT_THAT(AskAServer("127.0.0.1:0", files), IsEmpty());
}

}  // namespace
}  // namespace sluice::server
