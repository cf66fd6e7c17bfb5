// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_acceptor.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/grpc/host_port.h"
#include "tests/rpc/await.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

constexpr int kPatienceMs = 60'000;
// Programs of other tests retry ports of 127.0.0.1 on which their servers listened. Such a
// connection cannot reach this address.
constexpr char kHost[] = "127.77.1.1";

class Client {
 public:
  Client() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit Client(int port, const char* host = kHost) : Client() { Connect(port, host); }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Connect(int port, const char* host = kHost) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = ::inet_addr(host);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }

  std::string address() const {
    sockaddr_in own{};
    socklen_t size = sizeof(own);
    (void)::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size);
    return absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
  }
  // Sends until the other side accepts no more bytes.
  void Send(size_t bytes) const {
    const std::string data(bytes, 'x');
    size_t sent = 0;
    while (sent < bytes) {
      const ssize_t more = ::send(fd_, data.data() + sent, bytes - sent, MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += static_cast<size_t>(more);
    }
  }
  // Waits until the other side ends the connection.
  bool IsEnded() const {
    pollfd polled{.fd = fd_, .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&polled, 1, kPatienceMs) == 1 && ::recv(fd_, &byte, 1, 0) <= 0;
  }
  bool IsOpen() const {
    pollfd polled{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&polled, 1, 0) == 0;
  }

 private:
  const int fd_;
};

int OpenDescriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void Start(const server::ConnectionLimits& limits) {
    absl::StatusOr<std::vector<net::Listener>> listeners =
        net::ListenOnAll(absl::StrCat(kHost, ":0"));
    ASSERT_TRUE(listeners.ok()) << listeners.status();
    acceptor_.emplace(*std::move(listeners), limits, milliseconds(7000), Logger("test"));
    const auto take = [this](int fd) {
      MutexLock lock(&mutex_);
      given_.push_back(fd);
      while (held_) released_.Wait(&mutex_);
    };
    acceptor_->Start({take, take});
  }
  void TearDown() override {
    acceptor_.reset();
    for (const int fd : Given()) ::close(fd);
  }
  std::vector<int> Given() {
    MutexLock lock(&mutex_);
    return given_;
  }
  void ForgetGiven() {
    MutexLock lock(&mutex_);
    given_.clear();
  }
  std::vector<int> AwaitGiven(size_t count) {
    AwaitThat([&] { return Given().size() >= count; });
    return Given();
  }
  void CloseGiven(size_t index) {
    MutexLock lock(&mutex_);
    ::close(given_[index]);
    given_.erase(given_.begin() + static_cast<int>(index));
  }

  Mutex mutex_;
  std::vector<int> given_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar released_;
  std::optional<server::ConnectionAcceptor> acceptor_;
};

constexpr server::ConnectionLimits kRoomy{
    .strangers = 8, .strangers_per_peer = 8, .members = 8, .members_per_peer = 8};

TEST_F(ConnectionAcceptorTest, SocketsAreGivenAwayAsGrpcWantsThem) {
  Start(kRoomy);
  const Client client(acceptor_->port());
  const int fd = AwaitGiven(1)[0];
  EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  int value = 0;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
  EXPECT_NE(value, 0);
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
  EXPECT_EQ(value, 7000);
}

TEST_F(ConnectionAcceptorTest, AStrangerIsEndedInTimeAndAMemberNever) {
  server::ConnectionLimits limits = kRoomy;
  limits.patience = milliseconds(50);
  Start(limits);
  const Client member(acceptor_->port());
  acceptor_->Admit("127.0.0.1:1");
  AwaitThat([&] {
    acceptor_->Admit(member.address());
    return acceptor_->members() == 1;
  });
  const Client stranger(acceptor_->port());
  EXPECT_TRUE(stranger.IsEnded());
  EXPECT_EQ(acceptor_->strangers(), 0u);
  EXPECT_TRUE(member.IsOpen());
}

TEST_F(ConnectionAcceptorTest, TheOldestStrangerMakesWay) {
  server::ConnectionLimits limits = kRoomy;
  limits.strangers_per_peer = 2;
  Start(limits);
  const Client first(acceptor_->port());
  AwaitGiven(1);
  const Client second(acceptor_->port());
  AwaitGiven(2);
  const Client third(acceptor_->port());
  AwaitGiven(3);
  EXPECT_TRUE(first.IsEnded());
  EXPECT_TRUE(second.IsOpen());
  EXPECT_TRUE(third.IsOpen());
  EXPECT_EQ(acceptor_->strangers(), 2u);
}

TEST_F(ConnectionAcceptorTest, ConnectionsThatGrpcClosedAreForgotten) {
  Start(kRoomy);
  const Client stranger(acceptor_->port());
  AwaitGiven(1);
  const Client member(acceptor_->port());
  AwaitGiven(2);
  acceptor_->Admit(member.address());
  EXPECT_EQ(acceptor_->members(), 1u);
  CloseGiven(0);
  AwaitThat([&] { return acceptor_->strangers() == 0; });
  EXPECT_EQ(acceptor_->members(), 1u);
  // If another file gets the same descriptor number, it must not count as this connection.
  const int fd = Given()[0];
  ASSERT_EQ(::dup2(::fileno(stdin), fd), fd);
  AwaitThat([&] { return acceptor_->members() == 0; });
}

TEST_F(ConnectionAcceptorTest, ItHearsAgainWhenThereAreDescriptors) {
  Start(kRoomy);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 200;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::optional<Client> refused(std::in_place);
  std::vector<int> fill;
  for (int fd = 0; (fd = ::dup(0)) >= 0;) fill.push_back(fd);
  refused->Connect(acceptor_->port());
  EXPECT_TRUE(refused->IsEnded());
  AwaitThat([&] { return acceptor_->refused_for_lack_of_descriptors() == 1; });
  for (const int fd : fill) ::close(fd);
  const Client later(acceptor_->port());
  AwaitGiven(1);
  EXPECT_TRUE(later.IsOpen());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(ConnectionAcceptorTest, AStrangerThatHoldsATakerIsEndedWhileOthersWait) {
  {
    MutexLock lock(&mutex_);
    held_ = true;
  }
  Start(kRoomy);
  const Client member(acceptor_->port());
  AwaitGiven(1);
  acceptor_->Admit(member.address());
  const Client stranger(acceptor_->port());
  AwaitGiven(2);
  EXPECT_TRUE(stranger.IsOpen());
  const Client third(acceptor_->port());
  EXPECT_TRUE(stranger.IsEnded());
  EXPECT_TRUE(member.IsOpen());
  {
    MutexLock lock(&mutex_);
    held_ = false;
    released_.SignalAll();
  }
  AwaitGiven(3);
  EXPECT_TRUE(third.IsOpen());
  acceptor_->Admit(third.address());
  EXPECT_EQ(acceptor_->members(), 2u);
}

TEST_F(ConnectionAcceptorTest, AStrangerMaySendLittleAndAMemberMuch) {
  Start(kRoomy);
  const Client member(acceptor_->port());
  const int members_fd = AwaitGiven(1)[0];
  acceptor_->Admit(member.address());
  const Client stranger(acceptor_->port());
  const int strangers_fd = AwaitGiven(2)[1];
  std::atomic<bool> over = false;
  std::thread reader([&] {
    std::string buffer(1 << 20, '\0');
    while (!over) {
      (void)::recv(members_fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
      (void)::recv(strangers_fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    }
  });
  member.Send(8 << 20);
  stranger.Send(64 << 20);
  EXPECT_TRUE(stranger.IsEnded());
  EXPECT_TRUE(member.IsOpen());
  over = true;
  reader.join();
}

TEST_F(ConnectionAcceptorTest, NoDescriptorIsLeftOpen) {
  const int before = OpenDescriptors();
  Start(kRoomy);
  const int port = acceptor_->port();
  {
    const Client one(port);
    const Client two(port);
    AwaitGiven(2);
    acceptor_->Admit(one.address());
    acceptor_->Stop();
    acceptor_->Admit(two.address());
  }
  TearDown();
  ForgetGiven();
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_TRUE(net::ListenOnAll(absl::StrCat(kHost, ":", port)).ok());
}

TEST(ListenOnAllTest, ATakenPortIsRefused) {
  absl::StatusOr<std::vector<net::Listener>> first = net::ListenOnAll("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const int port = (*first)[0].port;
  for (const char* host : {"127.0.0.1", "0.0.0.0", "localhost"}) {
    EXPECT_EQ(net::ListenOnAll(absl::StrCat(host, ":", port)).status().code(),
              absl::StatusCode::kUnavailable)
        << host;
  }
  net::CloseAll(&*first);
}

TEST(ListenOnAllTest, HostsAreNamesAndAddresses) {
  for (const char* host : {"localhost", "127.0.0.1", "0.0.0.0", "[::]"}) {
    absl::StatusOr<std::vector<net::Listener>> listeners =
        net::ListenOnAll(absl::StrCat(host, ":0"));
    ASSERT_TRUE(listeners.ok()) << host << ": " << listeners.status();
    for (const net::Listener& listener : *listeners) {
      EXPECT_EQ(listener.port, listeners->front().port) << host;
    }
    const Client client(listeners->front().port, "127.0.0.1");
    net::CloseAll(&*listeners);
  }
  EXPECT_EQ(net::ListenOnAll("no-such-host.invalid:0").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(net::ListenOnAll("192.0.2.1:0").status().code(), absl::StatusCode::kUnavailable);
}

TEST(AddressOfPeerTest, IsTheAddressThatAcceptSays) {
  EXPECT_EQ(net::AddressOfPeer("ipv4:10.0.0.1:4242"), "10.0.0.1:4242");
  EXPECT_EQ(net::AddressOfPeer("ipv6:[::1]:4242"), "[::1]:4242");
  EXPECT_EQ(net::AddressOfPeer("ipv6:%5B::1%5D:4242"), "[::1]:4242");
  EXPECT_EQ(net::AddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:4242"), "[fe80::1]:4242");
  EXPECT_EQ(net::AddressOfPeer("inproc"), "");
}

}  // namespace
}  // namespace sluice
