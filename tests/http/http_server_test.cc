#include "http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "tests/temporary_folder.h"
#include "tests/transport/certificates.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

HttpAnswer Page(const std::string& path) {
  if (path == "/livez") return {.body = "alive\n"};
  if (path == "/throw") throw std::runtime_error("broken page");
  return {.status = 404, .type = "text/html", .body = "not " + path};
}

std::string Get(int port, const std::string& path, const char* method = "GET") {
  const int socket_fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(::write(socket_fd, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string response;
  char buffer[4096];
  for (ssize_t got; (got = ::read(socket_fd, buffer, sizeof(buffer))) > 0;) {
    response.append(buffer, static_cast<size_t>(got));
  }
  ::close(socket_fd);
  return response;
}

TEST(HttpServer, AnswersWhatItsPagesSay) {
  const auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, &Page);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_EQ((*server)->url(), absl::StrCat("http://127.0.0.1:", port, "/"));
  EXPECT_THAT(Get(port, "/livez"), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("alive"),
                                         HasSubstr("Content-Security-Policy: default-src 'none'")));
  EXPECT_THAT(Get(port, "/nothing"),
              AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("not /nothing"), HasSubstr("text/html")));
  EXPECT_THAT(Get(port, "/../etc/passwd"), Not(HasSubstr("root:")));
}

TEST(HttpServer, IsOnlyToBeRead) {
  const auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, &Page);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->port(), "/livez", "DELETE"), StartsWith("HTTP/1.1 405"));
}

TEST(HttpServer, ACertificateThatChangesIsTheNextConnections) {
  const TemporaryFolder folder;
  TestCa ca(folder.path(), "ca");
  ca.Certify("own");
  const auto server = HttpServer::Start({.listen = "127.0.0.1:0",
                                         .tls_cert = folder.Path("own.pem"),
                                         .tls_key = folder.Path("own.key")},
                                        &Page);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto asked = [&] {
    httplib::SSLClient client("127.0.0.1", (*server)->port());
    client.set_ca_cert_path(ca.path().c_str());
    client.enable_server_certificate_verification(true);
    const httplib::Result result = client.Get("/livez");
    return result && result->status == 200;
  };
  EXPECT_TRUE(asked());
  ca.Certify("own", {.subject_alt_name = "DNS:elsewhere"});
  EXPECT_FALSE(asked());
  ca.Certify("own");
  EXPECT_TRUE(asked());
  EXPECT_THAT(Get((*server)->port(), "/livez"), Not(HasSubstr("alive"))) << "in plaintext";
}

TEST(HttpServer, WhatIsNoAddressIsRefused) {
  for (const char* address : {"", "127.0.0.1", ":7071", "127.0.0.1:x", "127.0.0.1:65536"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start({.listen = address}, &Page).status()))
        << address;
  }
}

TEST(HttpServer, NoExceptionLeavesAPage) {
  const auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, &Page);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->port(), "/throw"), StartsWith("HTTP/1.1 500"));
}

TEST(HttpServer, ATakenPortIsAnErrorThatNamesIt) {
  const auto first = HttpServer::Start({.listen = "127.0.0.1:0"}, &Page);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = absl::StrCat("127.0.0.1:", (*first)->port());
  const auto second = HttpServer::Start({.listen = address}, &Page);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
}

}  // namespace
}  // namespace sluice
