// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/http/http_request.h"
#include "tests/net/grpc/certificates.h"
#include "tests/net/http/http_client.h"
#include "tests/temporary_folder.h"

namespace sluice::net {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

HttpAnswer Page(const std::string& path) {
  if (path == "/livez") return {.body = "alive\n"};
  if (path == "/throw") throw std::runtime_error("broken page");
  if (path == "/large") return {.body = std::string(size_t{8} << 20, 'x')};
  return {.status = 404, .type = "text/html", .body = "not " + path};
}

std::string Get(int port, const std::string& path, const char* method = "GET") {
  return HttpClient(port).Get(path, "Host: 127.0.0.1\r\n", method);
}

std::unique_ptr<HttpServer> StartServer(HttpOptions options, HttpPages pages = &Page) {
  options.listen = "127.0.0.1:0";
  auto server = HttpServer::Start(std::move(options), std::move(pages));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpServer, SendsTheAnswersOfItsPages) {
  const auto server = StartServer({});
  const int port = server->port();
  EXPECT_EQ(server->url(), absl::StrCat("http://127.0.0.1:", port, "/"));
  EXPECT_THAT(Get(port, "/livez"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nalive\n"),
                    HasSubstr("Content-Length: 6\r\n"),
                    HasSubstr("Content-Security-Policy: default-src 'none'")));
  EXPECT_THAT(Get(port, "/nothing"),
              AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("not /nothing"), HasSubstr("text/html")));
  EXPECT_THAT(Get(port, "/../etc/passwd"), Not(HasSubstr("root:")));
  EXPECT_THAT(Get(port, "/livez", "HEAD"),
              AllOf(HasSubstr("Content-Length: 6\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_GT(Get(port, "/large").size(), size_t{8} << 20);
}

TEST(HttpServer, IsOnlyToBeRead) {
  const auto server = StartServer({});
  EXPECT_THAT(Get(server->port(), "/livez", "DELETE"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD")));
}

TEST(HttpServer, ARequestMayComeInPieces) {
  const auto server = StartServer({});
  HttpClient client(server->port());
  for (const char c : absl::string_view("GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")) {
    ASSERT_TRUE(client.Send(std::string(1, c)));
  }
  EXPECT_THAT(client.Rest(), EndsWith("alive\n"));
}

TEST(HttpServer, ARangeHasNoEffect) {
  const auto server = StartServer({});
  const std::string digits = absl::StrCat("Range: bytes=", std::string(8000, '1'), "-\r\n");
  std::string many = "Range: bytes=0-";
  while (many.size() < 8000) many += ",0-";
  for (const std::string& range : {digits, many + "\r\n"}) {
    EXPECT_THAT(HttpClient(server->port()).Get("/livez", "Host: 127.0.0.1\r\n" + range),
                AllOf(StartsWith("HTTP/1.1 200"), EndsWith("\r\n\r\nalive\n")));
  }
}

TEST(HttpServer, ARequestWithoutEndIsRefused) {
  const auto server = StartServer({});
  for (const char* beginning : {"GET /", "GET /livez HTTP/1.1\r\nX: "}) {
    HttpClient client(server->port());
    client.Send(beginning + std::string(kRequestBytesMax, 'a'));
    EXPECT_THAT(client.Rest(), StartsWith("HTTP/1.1 431"));
  }
  // The server must stop reading a request that is too long, so that a client cannot send forever.
  HttpClient client(server->port());
  client.Send("GET /");
  size_t sent = 0;
  while (sent < (size_t{64} << 20) && client.Send(std::string(1 << 16, 'a'))) sent += 1 << 16;
  EXPECT_LT(sent, size_t{64} << 20);
}

TEST(HttpServer, ASlowRequestIsGivenUp) {
  const auto server = StartServer({.patience = std::chrono::milliseconds(200)});
  // Occasional bytes must not extend the time limit.
  HttpClient drips(server->port());
  drips.Send("GET /livez HTTP/1.1\r\nX: ");
  std::thread dripping([&] {
    while (drips.Send("a")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  EXPECT_THAT(HttpClient(server->port()).Rest(), IsEmpty());
  EXPECT_THAT(drips.Rest(), IsEmpty());
  dripping.join();
  EXPECT_THAT(Get(server->port(), "/livez"), EndsWith("alive\n"));
}

TEST(HttpServer, ASlowReaderIsGivenUp) {
  const auto server = StartServer({.patience = std::chrono::milliseconds(200)});
  HttpClient client(server->port());
  client.Send("GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  const auto closed = [&] { return !client.Send("x"); };
  for (int i = 0; i < 1000 && !closed(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(closed());
}

TEST(HttpServer, ManySilentClientsKeepNoOtherOut) {
  const auto server = StartServer({});
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<HttpClient>(server->port()));
    silent.back()->Send("GET /livez HTTP/1.1\r\nX: ");
    if (i % 20 == 19) {
      EXPECT_THAT(Get(server->port(), "/livez"), EndsWith("alive\n"));
    }
  }
  EXPECT_THAT(silent[0]->Rest(), IsEmpty()) << "the oldest connection must make way for newer ones";
}

TEST(HttpServer, AnswersThatAreNotTakenAreBounded) {
  // Two answers are within the limit, three are not.
  const auto server = StartServer({.untaken_bytes_max = size_t{20} << 20});
  std::vector<std::unique_ptr<HttpClient>> readers;
  for (int i = 0; i < 5; ++i) {
    readers.push_back(std::make_unique<HttpClient>(server->port()));
    readers.back()->Send("GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  }
  EXPECT_GT(Get(server->port(), "/large").size(), size_t{8} << 20)
      << "a client that reads gets the whole answer";
  EXPECT_LT(readers[0]->Rest().size(), size_t{8} << 20);
}

TEST(HttpServer, APageThatTakesLongHoldsUpNoProbe) {
  std::promise<void> finish;
  const std::shared_future<void> finished = finish.get_future().share();
  std::promise<void> begun;
  std::atomic<int> asked = 0;
  const auto server = StartServer({}, [&](const std::string& path) -> HttpAnswer {
    if (path != "/long") return Page(path);
    if (++asked == 1) begun.set_value();
    finished.wait();
    return {.body = "at last\n"};
  });
  HttpClient client(server->port());
  client.Send("GET /long HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  begun.get_future().wait();
  EXPECT_THAT(Get(server->port(), "/livez"), EndsWith("alive\n"));
  // Many clients that wait for the long page must not delay /livez either.
  std::vector<std::unique_ptr<HttpClient>> more;
  for (int i = 0; i < 100; ++i) {
    more.push_back(std::make_unique<HttpClient>(server->port()));
    more.back()->Send("GET /long HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    if (i % 20 == 19) {
      EXPECT_THAT(Get(server->port(), "/livez"), EndsWith("alive\n"));
    }
  }
  EXPECT_THAT(client.Rest(), IsEmpty()) << "the oldest connection must make way for newer ones";
  finish.set_value();
  EXPECT_THAT(more.back()->Rest(), EndsWith("at last\n"));
  EXPECT_LE(asked, 20) << "pages are built only for open connections";
}

TEST(HttpServer, PagesHaveAStackOfTheirOwnSize) {
  const auto server = StartServer({}, [](const std::string&) -> HttpAnswer {
    pthread_attr_t attributes;
    size_t size = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &size);
    pthread_attr_destroy(&attributes);
    return {.body = absl::StrCat(size)};
  });
  for (const char* path : {"/", "/livez"}) {
    EXPECT_THAT(Get(server->port(), path), EndsWith("\r\n\r\n1048576")) << path;
  }
}

TEST(HttpServer, IsAskedUnderItsOwnNames) {
  const auto server = StartServer({.names = {"alpha"}});
  const auto asked = [&](const std::string& path, const std::string& host) {
    return HttpClient(server->port()).Get(path, absl::StrCat("Host: ", host, "\r\n"));
  };
  for (const char* host : {"127.0.0.1", "localhost:7071", "[::1]:1", "alpha"}) {
    EXPECT_THAT(asked("/", host), StartsWith("HTTP/1.1 404")) << host;
  }
  EXPECT_THAT(asked("/", "evil.example"),
              AllOf(StartsWith("HTTP/1.1 421"), HasSubstr("--http-host"), Not(HasSubstr("evil"))));
  EXPECT_THAT(asked("/livez", "evil.example"), EndsWith("alive\n"));
}

TEST(HttpServer, ACertificateThatChangesIsTheNextConnections) {
  const TemporaryFolder folder;
  TestCa ca(folder.path(), "ca");
  ca.Certify("own");
  const auto server =
      StartServer({.tls_cert = folder.Path("own.pem"), .tls_key = folder.Path("own.key")});
  const auto asked = [&](const std::string& host = "127.0.0.1") {
    HttpClient client(server->port(), {.ca = ca.path()});
    return client.connected() ? client.Get("/", absl::StrCat("Host: ", host, "\r\n")) : "";
  };
  EXPECT_THAT(asked(), StartsWith("HTTP/1.1 404"));
  ca.Certify("own", {.subject_alt_name = "DNS:elsewhere"});
  EXPECT_EQ(asked(), "");
  ca.Certify("own", {.subject_alt_name = "DNS:elsewhere,IP:127.0.0.1"});
  EXPECT_THAT(asked(), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(asked("elsewhere"), StartsWith("HTTP/1.1 404"))
      << "the certificate contains this name";
  EXPECT_THAT(asked("evil.example"), StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(Get(server->port(), "/livez"), Not(HasSubstr("alive")))
      << "the port must refuse plaintext";
}

TEST(HttpServer, AClientShowsACertificateWhereOneIsAskedFor) {
  const TemporaryFolder folder;
  TestCa ca(folder.path(), "ca");
  TestCa other(folder.path(), "other");
  ca.Certify("own");
  ca.Certify("reader");
  other.Certify("stranger");
  const auto server = StartServer({.tls_cert = folder.Path("own.pem"),
                                   .tls_key = folder.Path("own.key"),
                                   .tls_client_ca = ca.path()});
  const auto asked = [&](const std::string& name) {
    HttpClient::Tls tls{.ca = ca.path()};
    if (!name.empty()) {
      tls.cert = folder.Path(name + ".pem");
      tls.key = folder.Path(name + ".key");
    }
    return HttpClient(server->port(), tls).Get("/livez");
  };
  EXPECT_EQ(asked(""), "");
  EXPECT_EQ(asked("stranger"), "");
  EXPECT_THAT(asked("reader"), EndsWith("alive\n"));
}

TEST(HttpServer, ATextThatIsNoAddressIsRefused) {
  for (const char* address : {"", "127.0.0.1", ":7071", "127.0.0.1:x", "127.0.0.1:65536"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start({.listen = address}, &Page).status()))
        << address;
  }
}

TEST(HttpServer, NoExceptionLeavesAPage) {
  const auto server = StartServer({});
  EXPECT_THAT(Get(server->port(), "/throw"),
              AllOf(StartsWith("HTTP/1.1 500"), HasSubstr("broken page")));
}

TEST(HttpServer, ATakenPortIsAnErrorThatNamesIt) {
  const auto first = StartServer({});
  const std::string address = absl::StrCat("127.0.0.1:", first->port());
  const auto second = HttpServer::Start({.listen = address}, &Page);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
}

TEST(HttpServer, EndsWhileItIsAsked) {
  auto server = StartServer({});
  HttpClient begun(server->port());
  begun.Send("GET /li");
  EXPECT_THAT(Get(server->port(), "/livez"), EndsWith("alive\n"));
  server.reset();
  EXPECT_THAT(begun.Rest(), IsEmpty());
}

}  // namespace
}  // namespace sluice::net
