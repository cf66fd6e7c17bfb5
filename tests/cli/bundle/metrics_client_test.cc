// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/metrics_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

// Answers one connection with `answer`, or never if it is empty.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    if (answer.empty()) return;
    thread_ = std::thread([this, answer] {
      const int client = ::accept(fd_, nullptr, nullptr);
      char buffer[4096];
      const ssize_t got = ::recv(client, buffer, sizeof(buffer), 0);
      request_.assign(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
      for (size_t done = 0; done < answer.size();) {
        const ssize_t sent =
            ::send(client, answer.data() + done, answer.size() - done, MSG_NOSIGNAL);
        if (sent <= 0) break;
        done += static_cast<size_t>(sent);
      }
      ::close(client);
    });
  }
  ~OneAnswer() {
    if (thread_.joinable()) thread_.join();
    ::close(fd_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Call after the answer has arrived.
  const std::string& request() {
    thread_.join();
    return request_;
  }

 private:
  const int fd_;
  int port_ = 0;
  std::string request_;
  std::thread thread_;
};

TEST(MetricsClientTest, ReadsTheBody) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nsluice_step 3\n");
  const absl::StatusOr<std::string> body = FetchMetrics(server.address(), {});
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(*body, "sluice_step 3\n");
  EXPECT_EQ(server.request(), absl::StrCat("GET /metrics HTTP/1.0\r\nHost: ", server.address(),
                                           "\r\nConnection: close\r\n\r\n"));
}

TEST(MetricsClientTest, EndsAtTheLimitOfBytes) {
  OneAnswer server("HTTP/1.1 200 OK\r\n\r\n" + std::string(1 << 20, 'x'));
  const absl::StatusOr<std::string> body = FetchMetrics(server.address(), {.bytes = 1000});
  EXPECT_THAT(std::string(body.status().message()), HasSubstr("more than 1000 bytes"));
}

TEST(MetricsClientTest, EndsAtTheLimitOfTime) {
  OneAnswer server("");
  const absl::StatusOr<std::string> body =
      FetchMetrics(server.address(), {.time = absl::Milliseconds(50)});
  EXPECT_EQ(body.status().code(), absl::StatusCode::kDeadlineExceeded) << body.status();
}

TEST(MetricsClientTest, RefusesOtherAnswersThan200) {
  EXPECT_EQ(BodyOf("HTTP/1.1 421 Misdirected\r\nA: b\r\n\r\nx").status().message(),
            "the answer is `HTTP/1.1 421 Misdirected`");
  EXPECT_THAT(std::string(BodyOf("\x15\x03\x03").status().message()), HasSubstr("not HTTP"));
  EXPECT_FALSE(BodyOf("HTTP/1.1 200 OK\r\nA: b\r\n").ok());
  EXPECT_FALSE(BodyOf("").ok());
}

TEST(MetricsClientTest, RefusesWhatIsNoAddress) {
  for (const char* const address :
       {"", "localhost", ":80", "localhost:0", "localhost:70000", "localhost:x"}) {
    EXPECT_EQ(FetchMetrics(address, {}).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
}

}  // namespace
}  // namespace sluice::cli
