// SPDX-License-Identifier: Apache-2.0
// Tests over gRPC how much memory a server uses for a client that sends requests but does not read
// the replies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/rpc/await.h"
#include "tests/rpc/fake_worker.h"
#include "tests/rpc/job_servers.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kElements = 250'000;
constexpr uint64_t kCopyBytes = sizeof(float) * kElements;  // Size of the parameters, 1 MB.

class UnreadRepliesTest : public ::testing::Test {
 protected:
  UnreadRepliesTest() {
    job_.name = std::string("test");
    job_.hash = 9;
    job_.workers = 1;
    job_.shards = 1;
    job_.exchange.compression.min_elements = 0;
    // The lease is so long that a busy machine causes no loss.
    job_.server.lease_timeout = absl::Hours(1);
    job_.server.window_bytes = 1 << 20;
  }
  void StartWith(uint32_t bundle_elements) {
    job_.exchange.compression.layout = {.chunk_elements = bundle_elements,
                                        .bundle_elements = bundle_elements};
    servers_.StartAll(job_);
    worker_.emplace(servers_.coordinator(), 0);
    worker_->request().mutable_table()->mutable_tensors(0)->set_shape(0, kElements);
    const grpc::Status joined = worker_->Join();
    Check(joined.ok(), joined.error_message().c_str());
  }
  uint64_t bytes_out() { return servers_[0].Stats().bytes_out; }

  job::JobSpec job_;
  JobServers servers_;
  std::optional<FakeWorker> worker_;
};

TEST_F(UnreadRepliesTest, AStreamThatAsksForCopiesAndReadsNoneEnds) {
  job_.exchange.mode = job::Mode::kAsync;
  job_.optimizer = {.name = "sgd", .lr = 0.05, .location = job::UpdateLocation::kShards};
  StartWith(kElements);
  FakeWorker::OpenStream open = worker_->Open(0);
  v1::ExchangeRequest request;
  *request.mutable_sender() = worker_->Sender();
  request.add_contributions()->set_frame(NoneFrame(std::vector<float>(kElements, 1)));
  ASSERT_TRUE(open.stream->Write(request));
  request.clear_contributions();
  request.set_keys_only(true);
  constexpr uint64_t kAsked = 40;
  bool is_open = true;
  for (uint64_t asked = 1; is_open && asked <= kAsked; ++asked) {
    AwaitThat([&] {
      is_open = open.stream->Write(request);
      return !is_open || bytes_out() >= asked * kCopyBytes;
    });
  }
  EXPECT_FALSE(is_open) << "the server holds " << bytes_out() << " bytes of answers";
  EXPECT_LT(bytes_out(), kAsked * kCopyBytes / 2);
  open.stream->WritesDone();
  v1::ExchangeReply reply;
  while (open.stream->Read(&reply)) {
  }
  const grpc::Status ended = open.stream->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(ended.error_message(), AllOf(HasSubstr("not read fast enough"), HasSubstr("bytes")));
  // A stream that reads its replies is served as before.
  FakeWorker::OpenStream other = worker_->Open(0);
  EXPECT_EQ(Ask(&other, request).outcome(), v1::OUTCOME_RESULT);
}

TEST_F(UnreadRepliesTest, AWholeStepOfResultsMayWait) {
  constexpr uint32_t kInBundle = 1000;
  constexpr uint32_t kBundles = kElements / kInBundle;
  job_.exchange.compression.downlink.codec = compress::CodecId::kNone;
  StartWith(kInBundle);
  FakeWorker::OpenStream open = worker_->Open(0);
  v1::ExchangeRequest request = worker_->Contribution(1, 1);
  request.mutable_contributions(0)->set_frame(NoneFrame(std::vector<float>(kInBundle, 1)));
  for (uint32_t bundle = 0; bundle < kBundles; ++bundle) {
    request.set_bundle(bundle);
    ASSERT_TRUE(open.stream->Write(request));
  }
  AwaitThat([&] { return bytes_out() >= kCopyBytes; });
  for (uint32_t bundle = 0; bundle < kBundles; ++bundle) {
    ASSERT_EQ(AwaitReply(&open).outcome(), v1::OUTCOME_RESULT) << bundle;
  }
}

}  // namespace
}  // namespace sluice
