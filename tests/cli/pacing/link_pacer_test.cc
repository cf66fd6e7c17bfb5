// SPDX-License-Identifier: Apache-2.0
#include "cli/pacing/link_pacer.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/launch/status_client.h"
#include "cli/pacing/connect_request.h"
#include "cli/pacing/token_bucket.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TokenBucketTest, RefillsAtItsRateUpToTheBurst) {
  const absl::Time start = absl::UnixEpoch();
  TokenBucket bucket(1000, 100, start);
  EXPECT_EQ(bucket.available(), 100);
  bucket.Take(100);
  EXPECT_EQ(bucket.available(), 0);
  EXPECT_EQ(bucket.TimeUntil(50), absl::Milliseconds(50));
  bucket.Refill(start + absl::Milliseconds(50));
  EXPECT_EQ(bucket.available(), 50);
  EXPECT_EQ(bucket.TimeUntil(50), absl::ZeroDuration());
  bucket.Refill(start + absl::Seconds(10));
  EXPECT_EQ(bucket.available(), 100);
  bucket.Refill(start);  // A clock that stops or goes back adds no tokens.
  EXPECT_EQ(bucket.available(), 100);
}

TEST(ConnectRequestTest, ReadsPortAndLength) {
  const std::string head = "CONNECT 127.0.0.1:7070 HTTP/1.0\r\nHost: x\r\n\r\n";
  const absl::StatusOr<ConnectRequest> request = ParseConnectRequest(head + "rest");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->port, 7070);
  EXPECT_EQ(request->head_size, head.size());
  for (size_t size = 0; size < head.size(); ++size) {
    const absl::StatusOr<ConnectRequest> part =
        ParseConnectRequest(absl::string_view(head).substr(0, size));
    ASSERT_TRUE(part.ok()) << size;
    EXPECT_EQ(part->head_size, 0u);
  }
}

TEST(ConnectRequestTest, RefusesTheRest) {
  for (const char* line :
       {"GET / HTTP/1.1", "CONNECT example.com:80 HTTP/1.1", "CONNECT 127.0.0.1 HTTP/1.1",
        "CONNECT 127.0.0.1:0 HTTP/1.1", "CONNECT 127.0.0.1:99999 HTTP/1.1", "CONNECT", ""}) {
    EXPECT_FALSE(ParseConnectRequest(absl::StrCat(line, "\r\n\r\n")).ok()) << line;
  }
  EXPECT_FALSE(ParseConnectRequest(std::string(kConnectHeadMax, 'x')).ok());
}

// A blocking TCP socket on loopback. If a peer stops answering, the test fails instead of hanging.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    const timeval limit{100, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  Socket() : Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() { Close(); }

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Ends the connection with a reset.
  void Break() {
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }
  void SetSendLimit(const timeval& limit) {
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  uint16_t Listen() {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    ::bind(fd_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(fd_, 16);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
  Socket Accept() { return Socket(::accept(fd_, nullptr, nullptr)); }
  bool Connect(uint16_t port) {
    const sockaddr_in address = Loopback(port);
    return ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  bool Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(sent);
    }
    return true;
  }
  // Returns the next bytes. Empty at the end of the stream and on errors.
  std::string Receive() {
    std::string buffer(65536, '\0');
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
    buffer.resize(std::max<ssize_t>(got, 0));
    return buffer;
  }
  size_t ReceiveAll() {
    size_t total = 0;
    for (std::string part = Receive(); !part.empty(); part = Receive()) total += part.size();
    return total;
  }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  int fd_;
};

struct Tunnel {
  Socket client, server;
};

class LinkPacerTest : public ::testing::Test {
 protected:
  // Starts a pacer. Process 0 listens; the other processes only connect.
  void StartPacer(double bits_per_second, size_t processes = 2) {
    StartPacer(bits_per_second, processes, &clock_);
  }
  void StartPacer(double bits_per_second, size_t processes, const Clock* clock) {
    server_port_ = listener_.Listen();
    std::vector<uint16_t> listens_on(processes, 0);
    listens_on[0] = server_port_;
    auto pacer = LinkPacer::Start(bits_per_second, listens_on, clock);
    ASSERT_TRUE(pacer.ok()) << pacer.status();
    pacer_ = *std::move(pacer);
  }
  Tunnel Open(size_t process) {
    Socket client;
    EXPECT_TRUE(client.Connect(pacer_->proxy_port(process)));
    EXPECT_TRUE(client.Send(absl::StrCat("CONNECT 127.0.0.1:", server_port_, " HTTP/1.1\r\n\r\n")));
    Socket server = listener_.Accept();
    EXPECT_EQ(client.Receive(), "HTTP/1.1 200 Connection established\r\n\r\n");
    return {std::move(client), std::move(server)};
  }
  std::string AnswerTo(absl::string_view request) {
    Socket client;
    EXPECT_TRUE(client.Connect(pacer_->proxy_port(1)));
    EXPECT_TRUE(client.Send(request));
    return client.Receive();
  }

  SteadyClock clock_;
  Socket listener_;
  uint16_t server_port_ = 0;
  std::unique_ptr<LinkPacer> pacer_;
};

TEST_F(LinkPacerTest, CarriesBytesBothWaysAndTheEndOfEach) {
  StartPacer(1e9);
  Tunnel tunnel = Open(1);
  ASSERT_TRUE(tunnel.client.Send("to the server"));
  EXPECT_EQ(tunnel.server.Receive(), "to the server");
  tunnel.client.EndSending();
  EXPECT_EQ(tunnel.server.Receive(), "");
  ASSERT_TRUE(tunnel.server.Send("still answered"));
  EXPECT_EQ(tunnel.client.Receive(), "still answered");
  tunnel.server.Close();
  EXPECT_EQ(tunnel.client.Receive(), "");
}

TEST_F(LinkPacerTest, TransferTakesAsLongAsTheRateSays) {
  constexpr double kRate = 80e6;
  constexpr size_t kBytes = 3'000'000;  // 0.3 s at this rate.
  StartPacer(kRate);
  Tunnel tunnel = Open(1);
  const absl::Time start = clock_.Now();
  std::thread sender([&] {
    EXPECT_TRUE(tunnel.client.Send(std::string(kBytes, 'x')));
    tunnel.client.EndSending();
  });
  EXPECT_EQ(tunnel.server.ReceiveAll(), kBytes);
  sender.join();
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - start);
  const double expected = kBytes * 8 / kRate;
  // Apart from the burst, the link must never be faster. How much slower it is depends on the
  // machine.
  EXPECT_GT(seconds, expected * 0.9);
}

TEST_F(LinkPacerTest, SendersShareTheReceiversLink) {
  constexpr double kRate = 80e6;
  constexpr size_t kBytes = 1'000'000;
  StartPacer(kRate, 3);
  Tunnel first = Open(1);
  Tunnel second = Open(2);
  const absl::Time start = clock_.Now();
  const auto send = [](Tunnel* tunnel) {
    EXPECT_TRUE(tunnel->client.Send(std::string(kBytes, 'x')));
    tunnel->client.EndSending();
  };
  std::thread one(send, &first);
  std::thread two(send, &second);
  std::thread reader([&] { EXPECT_EQ(first.server.ReceiveAll(), kBytes); });
  EXPECT_EQ(second.server.ReceiveAll(), kBytes);
  for (std::thread* thread : {&one, &two, &reader}) thread->join();
  EXPECT_GT(absl::ToDoubleSeconds(clock_.Now() - start), 2 * kBytes * 8 / kRate * 0.9);
}

// With a clock that stands still, each direction must pass its burst and then nothing.
TEST_F(LinkPacerTest, DirectionsDoNotShareALink) {
  constexpr size_t kBurst = 500'000;  // 4 ms at the link's rate.
  constexpr size_t kLeft = 65'536;    // At most this many bytes remain: less than one quantum.
  const SimulatedClock still;
  StartPacer(1e9, 2, &still);
  Tunnel tunnel = Open(1);
  std::thread up([&] { (void)tunnel.client.Send(std::string(4 * kBurst, 'x')); });
  const auto receive = [](Socket* socket, size_t count) {
    size_t came = 0;
    for (std::string part = "-"; came < count && !part.empty(); came += part.size()) {
      part = socket->Receive();
    }
    return came;
  };
  EXPECT_GE(receive(&tunnel.server, kBurst - kLeft), kBurst - kLeft);
  EXPECT_TRUE(tunnel.server.Send(std::string(2 * kLeft, 'y')));
  EXPECT_EQ(receive(&tunnel.client, 2 * kLeft), 2 * kLeft)
      << "uplink traffic must not slow the downlink";
  pacer_.reset();
  up.join();
}

TEST_F(LinkPacerTest, AReaderThatStopsHoldsTheSenderBack) {
  StartPacer(1e10);
  Tunnel tunnel = Open(1);
  // Without a reader, only the buffers of the sockets and of the pacer accept bytes.
  const timeval limit{0, 300'000};
  const std::string part(1 << 20, 'x');
  Socket& client = tunnel.client;
  size_t parts = 0;
  client.SetSendLimit(limit);
  while (parts < 64 && client.Send(part)) ++parts;
  EXPECT_LT(parts, 64u);
}

TEST_F(LinkPacerTest, ABrokenPeerEndsTheTunnel) {
  StartPacer(1e9);
  Tunnel tunnel = Open(1);
  ASSERT_TRUE(tunnel.client.Send("hello"));
  EXPECT_EQ(tunnel.server.Receive(), "hello");
  tunnel.server.Break();
  EXPECT_EQ(tunnel.client.Receive(), "");
  // The pacer must continue to serve other connections.
  Tunnel next = Open(1);
  next.client.Break();
  EXPECT_EQ(next.server.Receive(), "");
}

TEST_F(LinkPacerTest, RefusesWhatIsNotOfThisRun) {
  StartPacer(1e9);
  Socket other;
  const uint16_t foreign = other.Listen();
  EXPECT_THAT(AnswerTo(absl::StrCat("CONNECT 127.0.0.1:", foreign, " HTTP/1.1\r\n\r\n")),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(AnswerTo("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  listener_.Close();
  EXPECT_THAT(AnswerTo(absl::StrCat("CONNECT 127.0.0.1:", server_port_, " HTTP/1.1\r\n\r\n")),
              StartsWith("HTTP/1.1 502"));
}

TEST_F(LinkPacerTest, StopsWithOpenTunnels) {
  StartPacer(1e6);
  Tunnel tunnel = Open(1);
  ASSERT_TRUE(tunnel.client.Send(std::string(200'000, 'x')));
  pacer_.reset();
  EXPECT_LT(tunnel.server.ReceiveAll(), 200'000u);
}

class NamedCoordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusReply* reply) override {
    reply->set_job_name("mnist");
    reply->set_failure(std::string(size, 'x'));
    return grpc::Status::OK;
  }
  size_t size = 0;
};

struct CoordinatorServer {
  CoordinatorServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
  }
  NamedCoordinator service;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

TEST(LinkPacerGrpcTest, GrpcGoesThroughIt) {
  constexpr double kRate = 80e6;
  CoordinatorServer coordinator;
  coordinator.service.size = 2'000'000;  // 0.2 s at this rate.
  const SteadyClock clock;
  auto pacer = LinkPacer::Start(kRate, {static_cast<uint16_t>(coordinator.port), 0}, &clock);
  ASSERT_TRUE(pacer.ok()) << pacer.status();
  grpc::ChannelArguments arguments;
  // gRPC converts a worker's environment variable grpc_proxy to this argument.
  arguments.SetString(GRPC_ARG_HTTP_PROXY,
                      absl::StrCat("http://127.0.0.1:", (*pacer)->proxy_port(1)));
  auto stub = v1::Coordinator::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", coordinator.port), grpc::InsecureChannelCredentials(), arguments));
  const absl::Time start = clock.Now();
  grpc::ClientContext context;
  v1::GetStatusReply reply;
  const grpc::Status status = stub->GetStatus(&context, {}, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.failure().size(), coordinator.service.size);
  EXPECT_GT(absl::ToDoubleSeconds(clock.Now() - start),
            static_cast<double>(coordinator.service.size) * 8 / kRate * 0.9);
}

TEST(StatusClientTest, AsksWithoutBlockingAndKnowsWhenNobodyIsThere) {
  absl::StatusOr<v1::GetStatusReply> answer = absl::UnknownError("");
  std::string address;
  {
    CoordinatorServer coordinator;
    address = absl::StrCat("127.0.0.1:", coordinator.port);
    StatusClient client(address);
    EXPECT_FALSE(client.WaitForStatus(absl::ZeroDuration(), &answer));
    client.Ask(absl::Seconds(100));
    ASSERT_TRUE(client.WaitForStatus(absl::Seconds(100), &answer));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->job_name(), "mnist");
    client.Ask(absl::Seconds(20));
    // The client is destroyed while a request is in flight.
  }
  StatusClient client(address);
  client.Ask(absl::Seconds(5));
  ASSERT_TRUE(client.WaitForStatus(absl::Seconds(100), &answer));
  EXPECT_FALSE(answer.ok());
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr(address));
}

}  // namespace
}  // namespace sluice::cli
