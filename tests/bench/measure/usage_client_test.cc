// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/usage_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "sluice/v1/parameter_shard.grpc.pb.h"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(100);

// A server that implements only GetUsage. `scale` multiplies all its figures.
class UsedServer final : public v1::ParameterShard::Service {
 public:
  explicit UsedServer(double scale) : scale_(scale) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~UsedServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Makes the next `questions` requests fail as if the connection had broken.
  void BreakNext(int questions) { broken_ = questions; }

  grpc::Status GetUsage(grpc::ServerContext* /*context*/, const v1::GetUsageRequest* /*request*/,
                        v1::GetUsageReply* reply) override {
    if (broken_-- > 0) return {grpc::StatusCode::UNAVAILABLE, "Broken pipe"};
    reply->set_processor_seconds(10 * scale_);
    reply->set_peak_rss_bytes(static_cast<uint64_t>(100 * scale_));
    for (const char* stage : {"sum", "send", "of another version"}) {
      v1::StageUsage* const usage = reply->add_stages();
      usage->set_stage(stage);
      usage->set_processor_seconds(scale_);
    }
    return grpc::Status::OK;
  }

 private:
  const double scale_;
  int port_ = 0;
  std::atomic<int> broken_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(UsageClientTest, ServersAreAddedUp) {
  const UsedServer one(1);
  const UsedServer other(3);
  UsageClient client({one.address(), other.address()});
  const absl::StatusOr<ServersUsage> usage = client.Ask(kTimeout);
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_EQ(usage->cpu_seconds, 40);
  EXPECT_EQ(usage->peak_rss_bytes, 300u);
  EXPECT_EQ(usage->stages[static_cast<size_t>(protocol::Stage::kSum)], 4);
  EXPECT_EQ(usage->stages[static_cast<size_t>(protocol::Stage::kSend)], 4);
  EXPECT_EQ(usage->stages[static_cast<size_t>(protocol::Stage::kEncode)], 0);
}

TEST(UsageClientTest, AServerThatDoesNotAnswerIsNamed) {
  auto server = std::make_unique<UsedServer>(1);
  const std::string address = server->address();
  UsageClient client({address});
  ASSERT_TRUE(client.Ask(kTimeout).ok());
  server.reset();
  const absl::Status failed = client.Ask(kTimeout).status();
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr(address));
}

TEST(UsageClientTest, AQuestionThatALostConnectionSwallowedIsAskedAgain) {
  UsedServer server(1);
  UsageClient client({server.address()});
  ASSERT_TRUE(client.Ask(kTimeout).ok());
  server.BreakNext(1);
  const absl::StatusOr<ServersUsage> usage = client.Ask(kTimeout);
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_EQ(usage->cpu_seconds, 10);
  server.BreakNext(2);
  EXPECT_TRUE(absl::IsUnavailable(client.Ask(kTimeout).status()));
}

}  // namespace
}  // namespace sluice::bench
