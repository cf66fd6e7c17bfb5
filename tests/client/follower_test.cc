// SPDX-License-Identifier: Apache-2.0
// Tests the library's Follower against a service in this process.
#include "sluice/follower.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "follow/rpc/weights_hub.h"
#include "follow/rpc/weights_service.h"
#include "net/grpc/transport.h"
#include "protocol/weights.h"

namespace sluice::client {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kShards = 2;
constexpr uint32_t kColumns = 70;
constexpr uint32_t kTerm = 1;

// A value that differs between elements of a version and, for even elements, between versions.
float ValueAt(uint64_t step, size_t tensor, uint64_t element) {
  return static_cast<float>(1000 * tensor + element + (element % 2 == 0 ? 10000 * step : 0));
}

// A job whose weights the test sets. One server has the parts of all shards.
class FollowedJob {
 public:
  FollowedJob() { Begin(/*job_uid=*/1, /*rows=*/3); }
  ~FollowedJob() { server_->Shutdown(std::chrono::system_clock::now()); }

  // Begins a run with a model of its own.
  void Begin(uint64_t job_uid, int64_t rows) {
    std::map<uint32_t, follow::TensorLayout> layouts;
    {
      MutexLock lock(&mutex_);
      description_ = {.job = "followed",
                      .job_uid = job_uid,
                      .table = {{.name = "weight", .shape = {rows, kColumns}, .strides = {}},
                                {.name = "bias", .shape = {kColumns}, .strides = {}}},
                      .layout = {.chunk_elements = 64, .bundle_elements = 64},
                      .whole_rows = {},
                      .addresses = std::vector<std::string>(kShards),
                      .types = {compress::ElementType::kFloat32}};
      absl::StatusOr<follow::ModelParts> parts = protocol::PartsOfWeights(description_);
      ASSERT_TRUE(parts.ok()) << parts.status();
      parts_ = *std::move(parts);
      for (uint32_t i = 0; i < kShards; ++i) {
        ASSERT_FALSE(parts_.shards[i].empty());
        layouts[i] = follow::LayoutOfShard(parts_, i);
      }
    }
    hub_.Begin(job_uid, layouts);
  }

  void Publish(uint64_t step) {
    MutexLock lock(&mutex_);
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      std::vector<float> values;
      for (const follow::TensorPiece& piece : parts_.shards[shard]) {
        for (uint64_t i = 0; i < piece.count; ++i) {
          values.push_back(ValueAt(step, piece.tensor, piece.offset + i));
        }
      }
      std::vector<std::byte> weights(values.size() * sizeof(float));
      std::memcpy(weights.data(), values.data(), weights.size());
      hub_.Offer(shard, {.term = kTerm, .step = step}, compress::ElementType::kFloat32,
                 std::move(weights));
    }
  }
  void Finish() { hub_.Finish(absl::OkStatus()); }

  // Whether questions for the description wait.
  void HoldAnswers(bool hold) {
    MutexLock lock(&mutex_);
    hold_ = hold;
    changed_.SignalAll();
  }
  void AwaitQuestion() {
    MutexLock lock(&mutex_);
    while (questions_ == 0) changed_.Wait(&mutex_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  absl::StatusOr<protocol::WeightsDescription> Describe() {
    MutexLock lock(&mutex_);
    ++questions_;
    changed_.SignalAll();
    while (hold_) changed_.Wait(&mutex_);
    return description_;
  }
  std::unique_ptr<grpc::Server> Serve() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    return builder.BuildAndStart();
  }

  const SteadyClock clock_{};
  Mutex mutex_;
  CondVar changed_;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  int questions_ ABSL_GUARDED_BY(mutex_) = 0;
  protocol::WeightsDescription description_ ABSL_GUARDED_BY(mutex_);
  follow::ModelParts parts_ ABSL_GUARDED_BY(mutex_);
  follow::WeightsHub hub_{{.types = {compress::ElementType::kFloat32}}, Logger("hub")};
  follow::WeightsService service_{&hub_, [this] { return Describe(); }, net::Transport::Plain(),
                                  &clock_};
  int port_ = 0;
  const std::unique_ptr<grpc::Server> server_ = Serve();
};

std::unique_ptr<Follower> Follow(FollowerOptions options) {
  Result<std::unique_ptr<Follower>> follower = Follower::Create(options);
  EXPECT_TRUE(follower.ok()) << follower.status().message;
  return std::move(*follower);
}

// Expects a version of a job with so many rows.
void ExpectVersion(const Result<std::optional<FollowedVersion>>& next, uint64_t step,
                   int64_t rows) {
  ASSERT_TRUE(next.ok()) << next.status().message;
  ASSERT_TRUE(next->has_value());
  const FollowedVersion& version = **next;
  EXPECT_EQ(version.step, step);
  EXPECT_EQ(version.term, kTerm);
  EXPECT_GT(version.received_bytes, 0u);
  ASSERT_EQ(version.tensors.size(), 2u);
  EXPECT_EQ(version.tensors[0].name, "weight");
  EXPECT_THAT(version.tensors[0].shape, ElementsAre(rows, kColumns));
  EXPECT_EQ(version.tensors[1].name, "bias");
  EXPECT_THAT(version.tensors[1].shape, ElementsAre(kColumns));
  for (size_t tensor = 0; tensor < 2; ++tensor) {
    const uint64_t elements = (tensor == 0 ? rows : 1) * kColumns;
    ASSERT_EQ(version.tensors[tensor].bytes, elements * sizeof(float));
    const auto* const values = static_cast<const float*>(version.tensors[tensor].data);
    for (uint64_t i = 0; i < elements; ++i) ASSERT_EQ(values[i], ValueAt(step, tensor, i)) << i;
  }
}

TEST(LibraryFollower, HasEachVersionUntilTheJobEnds) {
  FollowedJob job;
  job.Publish(1);
  const auto follower = Follow({.address = job.address(), .type = ElementType::kFloat32});
  const auto first = follower->Next();
  ExpectVersion(first, 1, 3);
  EXPECT_EQ((*first)->changed, 4 * kColumns);
  job.Publish(2);
  const auto second = follower->Next();
  ExpectVersion(second, 2, 3);
  EXPECT_EQ((*second)->changed, 2 * kColumns) << "the even elements";
  job.Finish();
  for (int i = 0; i < 2; ++i) {
    const auto end = follower->Next();
    ASSERT_TRUE(end.ok()) << end.status().message;
    EXPECT_FALSE(end->has_value());
  }
}

TEST(LibraryFollower, GoesOnWithAnotherRunAndItsModel) {
  FollowedJob job;
  job.Publish(7);
  Mutex mutex;
  std::vector<std::string> lines;
  const auto follower =
      Follow({.address = job.address(),
              .type = ElementType::kFloat32,
              .log = [&](LogLevel, std::string_view component, std::string_view text) {
                MutexLock lock(&mutex);
                lines.push_back(std::string(component) + ": " + std::string(text));
              }});
  ExpectVersion(follower->Next(), 7, 3);
  job.Begin(/*job_uid=*/2, /*rows=*/5);
  job.Publish(1);
  ExpectVersion(follower->Next(), 1, 5);
  MutexLock lock(&mutex);
  EXPECT_THAT(lines, Contains(HasSubstr("follower: follows another run of job followed")));
}

TEST(LibraryFollower, AnInterruptEndsTheWait) {
  FollowedJob job;
  job.Publish(1);
  const auto follower = Follow({.address = job.address(), .type = ElementType::kFloat32});
  ExpectVersion(follower->Next(), 1, 3);
  StatusCode code = StatusCode::kOk;
  std::thread waiting([&] { code = follower->Next().status().code; });
  follower->Interrupt();
  waiting.join();
  EXPECT_EQ(code, StatusCode::kCancelled);
  EXPECT_EQ(follower->Next().status().code, StatusCode::kCancelled);
}

TEST(LibraryFollower, AnInterruptEndsTheWaitForASilentServer) {
  FollowedJob job;
  job.HoldAnswers(true);
  const auto follower = Follow({.address = job.address(), .patience_seconds = 0});
  Status status;
  std::thread waiting([&] { status = follower->Next().status(); });
  job.AwaitQuestion();
  follower->Interrupt();
  waiting.join();
  EXPECT_EQ(status.code, StatusCode::kCancelled) << status.message;
  job.HoldAnswers(false);
}

TEST(LibraryFollower, ErrorsSayWhat) {
  const auto nobody = Follow({.address = "127.0.0.1:1", .patience_seconds = 0});
  const auto no_server = nobody->Next();
  EXPECT_EQ(no_server.status().code, StatusCode::kUnavailable);
  EXPECT_THAT(no_server.status().message, HasSubstr("127.0.0.1:1"));

  FollowedJob job;
  const auto wrong_type =
      Follow({.address = job.address(), .type = ElementType::kBfloat16})->Next();
  EXPECT_EQ(wrong_type.status().code, StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong_type.status().message, HasSubstr("does not offer bf16, but fp32"));

  EXPECT_EQ(Follower::Create({.address = "a:1", .token_file = "/missing"}).status().code,
            StatusCode::kInvalidArgument);
  EXPECT_THAT(Follower::Create({.address = "a:1", .patience_seconds = -1}).status().message,
              HasSubstr("patience_seconds is -1"));
}

}  // namespace
}  // namespace sluice::client
