// SPDX-License-Identifier: Apache-2.0
// Both ends of `sluice doctor` in one process, and ends that do not keep to the rules.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/doctor/doctor_client.h"
#include "cli/doctor/doctor_service.h"
#include "cli/doctor/server_port.h"
#include "net/listener.h"
#include "tests/cli/doctor/marks.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kAnyPort[] = "127.0.0.1:0";

DoctorLimits SmallLimits() {
  DoctorLimits limits;
  limits.bytes = 4 << 20;
  limits.patience = absl::Seconds(60);  // For a busy machine.
  return limits;
}

absl::StatusOr<DoctorFindings> Examine(const std::string& address, DoctorLimits limits) {
  return ExamineLink({address, kAnyPort, {"0.2.0", 4096}, limits}, *net::Transport::Plain());
}

class DoctorTest : public ::testing::Test {
 protected:
  void Listen(const std::string& version, DoctorLimits limits = SmallLimits()) {
    service_ = std::make_unique<DoctorService>(DoctorMachine{version, 2048},
                                               net::Transport::Plain(), false, limits);
    port_ = *ServerPort::Open(kAnyPort, *net::Transport::Plain(), service_.get());
    stub_ = v1::Doctor::NewStub(net::Transport::Plain()->Dial(port_->address()));
  }
  // Becomes the peer, and returns the secret.
  std::string Begin() {
    grpc::ClientContext call;
    v1::DoctorBeginRequest request;
    request.mutable_host()->set_software_version("9\x1b[2J" + std::string(1000, 'x'));
    v1::DoctorBeginReply reply;
    const grpc::Status begun = stub_->Begin(&call, request, &reply);
    EXPECT_TRUE(begun.ok()) << begun.error_message();
    return reply.secret();
  }

  std::unique_ptr<DoctorService> service_;
  std::unique_ptr<ServerPort> port_;
  std::unique_ptr<v1::Doctor::Stub> stub_;
};

TEST_F(DoctorTest, BothEndsFindTheSame) {
  Listen("0.2.0");
  const absl::StatusOr<DoctorFindings> here = Examine(port_->address(), SmallLimits());
  ASSERT_TRUE(here.ok()) << here.status();
  const absl::StatusOr<DoctorFindings> there = service_->Wait(absl::ZeroDuration());
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(MarksOf(*here), "ok ok ok ok ok ok ok ok ");
  EXPECT_EQ(MarksOf(*there), "ok ok ok ok ok ok ok ok ");
  EXPECT_EQ(here->there.descriptors, 2048u);
  EXPECT_EQ(there->there.descriptors, 4096u);
  EXPECT_EQ(here->sent_bytes_per_second, there->received_bytes_per_second);
  EXPECT_EQ(here->received_bytes_per_second, there->sent_bytes_per_second);
  EXPECT_EQ(here->round_trip_seconds, there->round_trip_seconds);
  EXPECT_EQ(here->peer_ahead_seconds, -there->peer_ahead_seconds);
}

TEST_F(DoctorTest, AnotherVersionFailsOnBothEnds) {
  Listen("0.1.0");
  const absl::StatusOr<DoctorFindings> here = Examine(port_->address(), SmallLimits());
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(MarksOf(*here), "ok ok failed ok ok ok ok ok ");
  EXPECT_EQ(MarksOf(*service_->Wait(absl::ZeroDuration())), "ok ok failed ok ok ok ok ok ");
}

TEST_F(DoctorTest, AnAddressThatThisMachineLacksFailsOneCheck) {
  Listen("0.2.0");
  const absl::StatusOr<DoctorFindings> here =
      ExamineLink({port_->address(), "192.0.2.77:7070", {"0.2.0", 4096}, SmallLimits()},
                  *net::Transport::Plain());
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(MarksOf(*here), "ok failed ok ok ok ok ok ok ");
  EXPECT_THAT(std::string(here->reached_by_peer.message()),
              HasSubstr("cannot listen on 192.0.2.77:7070"));
  // The listener did not try.
  EXPECT_EQ(MarksOf(*service_->Wait(absl::ZeroDuration())), "failed ok ok ok ok ok ok ok ");
}

TEST_F(DoctorTest, StrangersAreRefused) {
  Listen("0.2.0");
  for (const char* const secret : {"", "0123"}) {
    grpc::ClientContext call;
    if (*secret != '\0') call.AddMetadata(kDoctorSecret, secret);
    v1::DoctorEndReply reply;
    EXPECT_EQ(stub_->End(&call, {}, &reply).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  Begin();
  const absl::StatusOr<DoctorFindings> second = Examine(port_->address(), SmallLimits());
  EXPECT_TRUE(absl::IsResourceExhausted(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("it checks another machine"));
}

TEST_F(DoctorTest, EachCheckIsMadeOnce) {
  Listen("0.2.0");
  const std::string secret = Begin();
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext call;
    call.AddMetadata(kDoctorSecret, secret);
    v1::DoctorBlock block;
    uint64_t bytes = 0;
    const auto reader = stub_->Download(&call, {});
    while (reader->Read(&block)) bytes += block.content().size();
    EXPECT_EQ(bytes, i == 0 ? SmallLimits().bytes : 0);
    EXPECT_EQ(reader->Finish().error_code(),
              i == 0 ? grpc::StatusCode::OK : grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

TEST_F(DoctorTest, UploadsEndAtTheLimit) {
  Listen("0.2.0");
  grpc::ClientContext call;
  call.AddMetadata(kDoctorSecret, Begin());
  v1::DoctorUploadReply reply;
  v1::DoctorBlock block;
  block.set_content(std::string(1 << 10, 'x'));
  const auto writer = stub_->Upload(&call, &reply);
  while (writer->Write(block)) {
  }
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_GT(reply.bytes_per_second(), 0);
}

TEST_F(DoctorTest, WrongPortsAndFiguresFromThePeerAreHarmless) {
  Listen("0.2.0");
  const std::string secret = Begin();
  grpc::ClientContext first;
  first.AddMetadata(kDoctorSecret, secret);
  v1::DoctorCallBackRequest port;
  port.set_port(70000);
  v1::DoctorCallBackReply called;
  EXPECT_EQ(stub_->CallBack(&first, port, &called).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext second;
  second.AddMetadata(kDoctorSecret, secret);
  v1::DoctorEndRequest figures;
  figures.set_upload_bytes_per_second(std::numeric_limits<double>::infinity());
  figures.set_download_bytes_per_second(-5);
  figures.set_round_trip_seconds(std::numeric_limits<double>::quiet_NaN());
  figures.set_listener_ahead_seconds(-std::numeric_limits<double>::infinity());
  v1::DoctorEndReply ended;
  EXPECT_TRUE(stub_->End(&second, figures, &ended).ok());
  const absl::StatusOr<DoctorFindings> found = service_->Wait(absl::ZeroDuration());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(MarksOf(*found), "failed ok failed failed failed failed warning ok ");
  EXPECT_THAT(found->there.version, StartsWith("9\\x1b[2Jxxx"));
  EXPECT_LT(found->there.version.size(), 100u);
}

TEST_F(DoctorTest, APeerThatIsSilentIsNotAwaitedForever) {
  DoctorLimits limits = SmallLimits();
  Listen("0.2.0", limits);
  EXPECT_THAT(std::string(service_->Wait(absl::ZeroDuration()).status().message()),
              StartsWith("no machine began within 0;"));
  limits.patience = limits.measuring = absl::Milliseconds(10);
  Listen("0.2.0", limits);
  Begin();
  const absl::StatusOr<DoctorFindings> found = service_->Wait(absl::Hours(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(found.status())) << found.status();
  EXPECT_THAT(std::string(found.status().message()),
              HasSubstr("began, and did not end within 100ms"));
}

TEST(DoctorClientTest, AListenerThatIsSilentIsNotAwaitedForever) {
  const absl::StatusOr<net::Listener> listener = net::Listen(kAnyPort);  // Accepts nothing.
  ASSERT_TRUE(listener.ok()) << listener.status();
  DoctorLimits limits;
  limits.patience = absl::Milliseconds(200);
  const std::string address = absl::StrCat("127.0.0.1:", listener->port);
  const absl::StatusOr<DoctorFindings> found = Examine(address, limits);
  EXPECT_THAT(std::string(found.status().message()),
              StartsWith(address + " did not answer within 200ms; check that a firewall"));
  std::vector<net::Listener> all = {*listener};
  net::CloseAll(&all);
}

// A listener that does not keep to the rules.
class Liar final : public v1::Doctor::Service {
 public:
  std::string secret = "secret";

  grpc::Status Begin(grpc::ServerContext*, const v1::DoctorBeginRequest*,
                     v1::DoctorBeginReply* reply) override {
    reply->set_secret(secret);
    reply->mutable_host()->set_software_version(std::string(1 << 20, '\n'));
    reply->set_peer_address("a name\n:7070");
    return grpc::Status::OK;
  }
  grpc::Status Echo(grpc::ServerContext*, const v1::DoctorEchoRequest*,
                    v1::DoctorEchoReply* reply) override {
    reply->set_unix_seconds(std::numeric_limits<double>::quiet_NaN());
    return grpc::Status::OK;
  }
  grpc::Status Download(grpc::ServerContext*, const v1::DoctorDownloadRequest*,
                        grpc::ServerWriter<v1::DoctorBlock>* blocks) override {
    v1::DoctorBlock block;
    block.set_content(std::string(1 << 20, 'x'));
    while (blocks->Write(block)) {
    }
    return grpc::Status::OK;
  }
  grpc::Status Upload(grpc::ServerContext*, grpc::ServerReader<v1::DoctorBlock>* blocks,
                      v1::DoctorUploadReply* reply) override {
    v1::DoctorBlock block;
    while (blocks->Read(&block)) received += block.content().size();
    reply->set_bytes_per_second(std::numeric_limits<double>::infinity());
    return grpc::Status::OK;
  }
  grpc::Status CallBack(grpc::ServerContext*, const v1::DoctorCallBackRequest*,
                        v1::DoctorCallBackReply* reply) override {
    reply->set_error(std::string(1 << 20, '\n'));
    return grpc::Status::OK;
  }
  grpc::Status End(grpc::ServerContext*, const v1::DoctorEndRequest*,
                   v1::DoctorEndReply*) override {
    return grpc::Status::OK;
  }

  std::atomic<uint64_t> received = 0;
};

TEST(DoctorClientTest, AListenerThatLiesCannotHoldOrMisleadIt) {
  Liar liar;
  const auto port = *ServerPort::Open(kAnyPort, *net::Transport::Plain(), &liar);
  const absl::StatusOr<DoctorFindings> found = Examine(port->address(), SmallLimits());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(MarksOf(*found), "ok failed failed ok failed ok warning ok ");
  EXPECT_LE(liar.received, 2 * SmallLimits().bytes);
  EXPECT_LT(found->there.version.size(), 200u);
  EXPECT_LT(found->reached_by_peer.message().size(), 600u);
}

TEST(DoctorClientTest, ANameIsNoAddressOfThisMachine) {
  Liar liar;
  const auto port = *ServerPort::Open(kAnyPort, *net::Transport::Plain(), &liar);
  const absl::StatusOr<DoctorFindings> found =
      ExamineLink({port->address(), "", {"0.2.0", 4096}, SmallLimits()}, *net::Transport::Plain());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->reached_by_peer.message(), "the other machine named no address of this one");
}

TEST(DoctorClientTest, AWrongSecretIsRefused) {
  for (const char* const secret : {"", "two\nlines", "\xc3\xa4"}) {
    Liar liar;
    liar.secret = secret;
    const auto port = *ServerPort::Open(kAnyPort, *net::Transport::Plain(), &liar);
    const absl::StatusOr<DoctorFindings> found = Examine(port->address(), SmallLimits());
    EXPECT_FALSE(found.ok());
  }
}

TEST(DoctorClientTest, AnotherProgramIsNamedAsSuch) {
  class Other final : public v1::Doctor::Service {};
  Other other;
  const auto port = *ServerPort::Open(kAnyPort, *net::Transport::Plain(), &other);
  const absl::StatusOr<DoctorFindings> found = Examine(port->address(), SmallLimits());
  EXPECT_THAT(std::string(found.status().message()),
              HasSubstr("is another program, or another version"));
}

TEST(ServerPortTest, SaysWhyItCannotListen) {
  class Other final : public v1::Doctor::Service {};
  Other first;
  Other second;
  const auto port = *ServerPort::Open(kAnyPort, *net::Transport::Plain(), &first);
  EXPECT_THAT(
      std::string(
          ServerPort::Open(port->address(), *net::Transport::Plain(), &second).status().message()),
      HasSubstr("cannot listen on " + port->address() + ": Address already in use"));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ServerPort::Open("nonsense", *net::Transport::Plain(), &second).status()));
}

}  // namespace
}  // namespace sluice::cli
