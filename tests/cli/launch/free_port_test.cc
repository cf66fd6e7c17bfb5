// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/free_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace sluice::cli {
namespace {

TEST(FreePortTest, TwoHeldOnesDiffer) {
  const absl::StatusOr<FreePort> first = FreePort::Reserve();
  const absl::StatusOr<FreePort> second = FreePort::Reserve();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->port(), 0);
  EXPECT_NE(first->port(), second->port());
}

TEST(FreePortTest, ATakenOneIsAnErrorUntilItIsReleased) {
  absl::StatusOr<FreePort> holder = FreePort::Reserve();
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(FreePort::Reserve(holder->port()).status().code(), absl::StatusCode::kAlreadyExists);
  holder->Release();
  const absl::StatusOr<FreePort> again = FreePort::Reserve(holder->port());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->port(), holder->port());
}

// Returns a listening socket, opened as servers do, or -errno.
int Listen(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(fd, 1) == 0) {
    return fd;
  }
  const int error = errno;
  ::close(fd);
  return -error;
}

TEST(FreePortTest, ASharedOneCanBeListenedOnAgainAndAgain) {
  absl::StatusOr<FreePort> port = FreePort::Reserve();
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_EQ(Listen(port->port()), -EADDRINUSE);
  ASSERT_TRUE(port->Share().ok());
  for (int start = 0; start < 2; ++start) {
    const int server = Listen(port->port());
    EXPECT_GE(server, 0);
    EXPECT_EQ(Listen(port->port()), -EADDRINUSE);
    ::close(server);
  }
}

}  // namespace
}  // namespace sluice::cli
