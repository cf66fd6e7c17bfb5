// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/transport.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/grpc/connection_reason.h"
#include "net/grpc/grpc_weakness.h"
#include "net/grpc/host_port.h"
#include "tests/net/grpc/certificates.h"
#include "tests/temporary_folder.h"

namespace sluice::net {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(IsLoopback, OnlyWhatIsThisHostForSure) {
  for (const char* address : {"127.0.0.1:7070", "127.8.9.1:0", "localhost:1", "[::1]:7070"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "127.0.0.1.evil.com:1",
                              "127.evil:1", "localhost.evil:1", "alpha:7070", ":7070", ""}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

class TransportTest : public ::testing::Test {
 protected:
  TransportTest() : ca_(folder_.path(), "ca"), other_(folder_.path(), "other") {
    ca_.Certify("good");
    ca_.Certify("unrelated");
    ca_.Certify("expired", {.valid_from = -absl::Hours(2), .valid_until = -absl::Hours(1)});
    ca_.Certify("early", {.valid_from = absl::Hours(1), .valid_until = absl::Hours(2)});
    folder_.Write("token", std::string(32, 't'));
    folder_.Write("rubbish", "rubbish");
  }
  TransportOptions With(const std::string& cert, const std::string& key, const std::string& ca,
                        const std::string& token) const {
    const auto path = [&](const std::string& name) {
      return name.empty() ? "" : folder_.Path(name);
    };
    return {path(cert), path(key), path(ca), path(token)};
  }
  std::string Refusal(const TransportOptions& options) {
    const auto transport = Transport::Open(options, Logger("test"));
    EXPECT_TRUE(absl::IsInvalidArgument(transport.status())) << transport.status();
    return std::string(transport.status().message());
  }
  std::shared_ptr<const Transport> Open(const TransportOptions& options) {
    const auto transport = Transport::Open(options, Logger("test"));
    Check(transport.ok(), transport.status().message());
    return *transport;
  }

  TemporaryFolder folder_;
  TestCa ca_;
  TestCa other_;
};

// A variable of the environment that has another value for a while.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name); before != nullptr) before_ = before;
    ::setenv(name, value, 1);
  }
  ~Variable() {
    if (before_.has_value()) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

TEST_F(TransportTest, OnlyTheProxyOfItsOptionsCounts) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  grpc::AsyncGenericService service;
  builder.RegisterAsyncGenericService(&service);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string address = absl::StrCat("127.0.0.1:", port);
  const auto connects = [&](const TransportOptions& options, std::chrono::seconds limit) {
    return Open(options)->Dial(address)->WaitForConnected(std::chrono::system_clock::now() + limit);
  };
  // The environment of the test may exclude loopback from proxies. Nothing listens on port 1.
  const Variable excluded("no_grpc_proxy", "none");
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) {
    const Variable proxy(name, "http://127.0.0.1:1");
    EXPECT_TRUE(connects({}, std::chrono::seconds(30))) << name;
  }
  TransportOptions proxied;
  proxied.grpc_proxy = "http://127.0.0.1:1";
  EXPECT_FALSE(connects(proxied, std::chrono::seconds(1)));
  server->Shutdown();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
}

TEST_F(TransportTest, SecretsThatOthersCanReadAreNamedOnceAtTheStart) {
  folder_.Write("roles", "observer anyone\n");
  TransportOptions options = With("good.pem", "good.key", "ca.pem", "token");
  options.role_file = folder_.Path("roles");
  const auto warnings = [&] {
    std::vector<std::string> texts;
    LogOptions log;
    log.sink = [&](LogLevel level, absl::string_view, absl::string_view text) {
      if (level == LogLevel::kWarning) texts.emplace_back(text);
    };
    Check(Transport::Open(options, Logger("test", log)).ok(), "files");
    return texts;
  };
  for (const char* secret : {"token", "roles", "good.key"}) {
    std::filesystem::permissions(folder_.Path(secret), std::filesystem::perms(0600));
  }
  EXPECT_THAT(warnings(), IsEmpty());
  for (const char* secret : {"token", "roles", "good.key"}) {
    std::filesystem::permissions(folder_.Path(secret), std::filesystem::perms(0644));
  }
  EXPECT_THAT(warnings(),
              ElementsAre(HasSubstr("--token-file: " + folder_.Path("token") + " has mode 0644"),
                          HasSubstr("--role-file: " + folder_.Path("roles")),
                          HasSubstr("--tls-key: " + folder_.Path("good.key"))));
}

TEST_F(TransportTest, WrongFilesAreNamedBeforeAnybodyConnects) {
  EXPECT_THAT(Refusal(With("good.pem", "", "", "")),
              HasSubstr("--tls-cert and --tls-key are needed"));
  EXPECT_THAT(Refusal(With("", "good.key", "", "")),
              HasSubstr("--tls-cert and --tls-key are needed"));
  EXPECT_THAT(Refusal(With("none", "good.key", "", "")),
              HasSubstr("--tls-cert: cannot read " + folder_.Path("none") + " (No such file"));
  EXPECT_THAT(Refusal(With("rubbish", "good.key", "", "")), HasSubstr("no certificate in PEM"));
  EXPECT_THAT(Refusal(With("good.pem", "rubbish", "", "")), HasSubstr("no private key in PEM"));
  EXPECT_THAT(
      Refusal(With("good.pem", "unrelated.key", "", "")),
      AllOf(HasSubstr("is not the key"), HasSubstr("certificate in " + folder_.Path("good.pem"))));
  EXPECT_THAT(Refusal(With("expired.pem", "expired.key", "", "")), HasSubstr("has expired"));
  EXPECT_THAT(Refusal(With("early.pem", "early.key", "", "")), HasSubstr("is not valid yet"));
  EXPECT_THAT(Refusal(With("", "", "rubbish", "")), HasSubstr("--tls-ca: "));
  EXPECT_THAT(Refusal(With("", "", "", "rubbish")), HasSubstr("--token-file: token 1"));
  EXPECT_THAT(Refusal(With("", "", folder_.path() + "/..", "")), HasSubstr("--tls-ca: "));
}

TEST_F(TransportTest, WhoeverReachesAPortIsLetInOnlyWhenAskedFor) {
  const auto refusal = [](const std::shared_ptr<const Transport>& transport) {
    const absl::Status status = transport->MayListen("0.0.0.0:7070", false);
    EXPECT_TRUE(transport->MayListen("0.0.0.0:7070", true).ok());
    EXPECT_TRUE(transport->MayListen("127.0.0.1:7070", false).ok());
    return std::string(status.message());
  };
  for (const char* way : {"--token-file", "--tls-ca", "--allow-anonymous"}) {
    EXPECT_THAT(refusal(Transport::Plain()), HasSubstr(way));
    EXPECT_THAT(refusal(Open(With("good.pem", "good.key", "", ""))), HasSubstr(way));
  }
  EXPECT_THAT(refusal(Open(With("good.pem", "good.key", "ca.pem", ""))), IsEmpty());
  EXPECT_THAT(refusal(Open(With("", "", "", "token"))), IsEmpty());
  const absl::Status trusting =
      Open(With("", "", "ca.pem", "token"))->MayListen("127.0.0.1:7070", true);
  EXPECT_THAT(std::string(trusting.message()), HasSubstr("also needs its own certificate"));
}

TEST_F(TransportTest, ATokenInPlaintextIsWarnedOf) {
  EXPECT_THAT(Open(With("", "", "", "token"))->WarningFor("10.0.0.1:7070"),
              HasSubstr("in plaintext (10.0.0.1:7070)"));
  EXPECT_THAT(Open(With("", "", "", "token"))->WarningFor("127.0.0.1:7070"), IsEmpty());
  EXPECT_THAT(Open(With("", "", "ca.pem", "token"))->WarningFor("10.0.0.1:7070"), IsEmpty());
  EXPECT_THAT(Transport::Plain()->WarningFor("10.0.0.1:7070"), IsEmpty());
}

TEST(GrpcWeakness, KnowsTheLinkedLibrary) { EXPECT_EQ(LinkedGrpcVersion(), grpc::Version()); }

TEST(GrpcWeakness, IsOfVersionsBeforeTheMend) {
  for (const char* version : {"1.51.1", "1.0.0", "1.56.1", "1.56.1-dev", "1.56", "0.99.9"}) {
    EXPECT_THAT(GrpcWeakness(version), HasSubstr(version));
  }
  for (const char* version :
       {"1.56.2", "1.56.2-pre1", "1.57.0", "1.100.0", "2.0.0", "", "x", "1"}) {
    EXPECT_THAT(GrpcWeakness(version), IsEmpty()) << version;
  }
}

TEST_F(TransportTest, AListenerThatStrangersReachIsWarnedOf) {
  const auto warning = [this](const TransportOptions& options, const char* address) {
    return Open(options)->ListenWarning(address);
  };
  const std::string expected = GrpcWeakness(grpc::Version());
  EXPECT_EQ(warning(With("", "", "", "token"), "10.0.0.1:7070"), expected);
  EXPECT_EQ(warning(With("good.pem", "good.key", "", "token"), "0.0.0.0:7070"), expected);
  EXPECT_THAT(warning(With("good.pem", "good.key", "ca.pem", ""), "10.0.0.1:7070"), IsEmpty());
  EXPECT_THAT(warning(With("", "", "", "token"), "127.0.0.1:7070"), IsEmpty());
}

}  // namespace
}  // namespace sluice::net
