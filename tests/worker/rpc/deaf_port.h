// SPDX-License-Identifier: Apache-2.0
// DeafPort: an address without a listener.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::worker {

// Reserves a loopback port without listening on it, so that connections are refused.
class DeafPort {
 public:
  DeafPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~DeafPort() { close(socket_); }
  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

}  // namespace sluice::worker
