// SPDX-License-Identifier: Apache-2.0
// Tests real sessions with real servers, so that both sides of the protocol are the shipped code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/rpc/server.h"
#include "tests/rpc/await.h"
#include "tests/worker/rpc/joined_session.h"
#include "worker/rpc/remote_client.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kWorkers = 3;

job::JobSpec ThreeWorkerJob(absl::string_view codec) {
  job::JobSpec job;
  job.name = "test";
  job.hash = 9;
  job.workers = kWorkers;
  job.shards = 2;
  job.exchange.compression.uplink = *compress::ParseCodecSpec(codec);
  job.exchange.compression.downlink = *compress::ParseCodecSpec(codec);
  job.exchange.compression.min_elements = 8;
  job.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 2000};
  job.server.heartbeat_interval = absl::Milliseconds(50);
  // The lease is so long that a busy machine causes no loss.
  job.server.lease_timeout = absl::Hours(1);
  return job;
}

protocol::TensorTable TwoTensors() {
  return {{.name = "w", .shape = {50, 90}, .strides = {}, .dtype = protocol::DType::kFloat32},
          {.name = "b", .shape = {5}, .strides = {}, .dtype = protocol::DType::kFloat32}};
}

class SessionTest : public ::testing::Test {
 protected:
  void StartServers(const job::JobSpec& job) {
    job_ = job;
    for (uint32_t shard = 0; shard < job.shards; ++shard) {
      absl::StatusOr<std::unique_ptr<server::Server>> server =
          server::Server::Start({.job = job,
                                 .shard = shard,
                                 .listen = "127.0.0.1:0",
                                 .coordinator = shard == 0 ? "" : servers_[0]->address(),
                                 .software_version = "1",
                                 .job_uid = 77},
                                &clock_);
      ASSERT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
    }
  }
  void TearDown() override {
    while (!servers_.empty()) servers_.pop_back();
  }
  worker::RemoteSessionOptions Options(uint32_t rank) const {
    worker::RemoteSessionOptions options;
    options.coordinator = servers_[0]->address();
    options.job_name = job_.name;
    options.job_hash = job_.hash;
    options.rank = rank;
    options.shards = job_.shards;
    options.exchange.compression = job_.exchange.compression;
    options.exchange.buffer_sync_interval = job_.exchange.buffer_sync_interval;
    options.software_version = "1";
    return options;
  }
  // Runs each rank on a separate thread.
  void RunRanks(const std::function<void(uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
  absl::Status AwaitOutcome(uint32_t shard) {
    std::optional<absl::Status> outcome;
    AwaitThat([&] { return (outcome = servers_[shard]->Outcome()).has_value(); });
    return *outcome;
  }

  SteadyClock clock_;
  job::JobSpec job_;
  std::vector<std::unique_ptr<server::Server>> servers_;
};

TEST_F(SessionTest, DenseStepsGiveTheMeanAndTheJobEnds) {
  StartServers(ThreeWorkerJob("none"));
  RunRanks([&](uint32_t rank) {
    // The parameters of rank 0 differ from those of the others, so step 0 must make them equal.
    const worker::JoinedSession session(Options(rank), TwoTensors(),
                                        std::string(32, rank == 0 ? 'a' : 'b'));
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_FALSE(session.info().parameters_agree);
    std::vector<float> w(4500, static_cast<float>(rank)), b(5, static_cast<float>(rank) - 0.5f);
    ASSERT_TRUE(session->AgreeOnParameters({absl::MakeSpan(w), absl::MakeSpan(b)}).ok());
    EXPECT_EQ(w[4499], 0.0f);
    EXPECT_EQ(b[0], -0.5f);
    for (int step = 1; step <= 5; ++step) {
      if (step == 4 && rank == 2) {
        ASSERT_TRUE(session->Skip().ok());
      } else {
        w.assign(w.size(), static_cast<float>(rank * step));
        b.assign(b.size(), static_cast<float>(step));
        ASSERT_TRUE(session->Submit(1, b).ok());
        ASSERT_TRUE(session->Submit(0, w).ok());
      }
      const auto result = session->Wait();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->n_min, step == 4 ? 2u : 3u);
      ASSERT_TRUE(session->Apply(0, absl::MakeSpan(w)).ok());
      ASSERT_TRUE(session->Apply(1, absl::MakeSpan(b)).ok());
      EXPECT_EQ(w[17], step == 4 ? 2.0f : static_cast<float>(step));
      EXPECT_EQ(b[4], static_cast<float>(step));
    }
    EXPECT_TRUE(session->Leave().ok());
  });
  EXPECT_TRUE(AwaitOutcome(0).ok());
  EXPECT_TRUE(AwaitOutcome(1).ok());
  EXPECT_EQ(servers_[0]->Stats().highest_closed_step, 5u);
  EXPECT_EQ(servers_[0]->Stats().repeats, 0u);
}

TEST_F(SessionTest, MeansAreTakenWhileTheStepIsOpen) {
  job::JobSpec job = ThreeWorkerJob("none");
  // Each chunk is a bundle.
  job.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 1000};
  protocol::TensorTable table = TwoTensors();
  table[1].shape = {1000};
  StartServers(job);
  absl::Notification applied;
  RunRanks([&](uint32_t rank) {
    const worker::JoinedSession session(Options(rank), table, std::string(32, 'a'));
    ASSERT_TRUE(session.ok()) << session.status();
    std::vector<float> w(4500, static_cast<float>(rank));
    std::vector<float> b(1000, static_cast<float>(2 * rank));
    ASSERT_TRUE(session->Submit(1, b).ok());
    if (rank > 0) applied.WaitForNotification();
    ASSERT_TRUE(session->Submit(0, w).ok());
    std::vector<uint32_t> order;
    for (std::optional<worker::StepResult> result; !result.has_value();) {
      const auto ready = session->WaitForTensors(absl::Hours(1));
      ASSERT_TRUE(ready.ok()) << ready.status();
      for (const worker::ReadyTensor& tensor : *ready) {
        EXPECT_TRUE(tensor.has_mean);
        order.push_back(tensor.tensor);
        ASSERT_TRUE(session->Apply(tensor.tensor, absl::MakeSpan(tensor.tensor == 0 ? w : b)).ok());
      }
      const auto over = session->WaitFor(absl::ZeroDuration());
      ASSERT_TRUE(over.ok()) << over.status();
      if (rank == 0 && order == std::vector<uint32_t>{1}) {
        EXPECT_FALSE(over->has_value());
        applied.Notify();
      }
      result = *over;
    }
    EXPECT_THAT(order, testing::UnorderedElementsAre(1, 0));
    EXPECT_THAT(w, testing::Each(1.0f));
    EXPECT_THAT(b, testing::Each(2.0f));
    EXPECT_TRUE(session->Leave().ok());
  });
}

// The Join of this job is larger than the bytes that a connection may send before its first call.
// It must still succeed.
TEST_F(SessionTest, AJobOfManyTensorsIsJoined) {
  StartServers(ThreeWorkerJob("none"));
  protocol::TensorTable table;
  for (int i = 0; i < 4000; ++i) {
    table.push_back({.name = absl::StrCat("layers.", i, std::string(100, '.'), "weight"),
                     .shape = {1},
                     .strides = {},
                     .dtype = protocol::DType::kFloat32});
  }
  RunRanks([&](uint32_t rank) {
    const worker::JoinedSession session(Options(rank), table, std::string(32, 'a'));
    EXPECT_TRUE(session.ok()) << session.status();
  });
}

// Figures must arrive from every rank and shard and appear in the status. The test does not check
// their values.
TEST_F(SessionTest, LinksAreMeasuredWhileStepsAreDone) {
  StartServers(ThreeWorkerJob("none"));
  const auto all_known = [&] {
    for (const std::unique_ptr<server::Server>& server : servers_) {
      for (const protocol::LinkFigures& link : server->Links().ranks) {
        if (link.up_rate <= 0 || link.down_rate <= 0) return false;
      }
    }
    const std::optional<server::JobStatus> status = servers_[0]->Status();
    return std::all_of(status->members.begin(), status->members.end(), [](const auto& member) {
      return member.link.up_rate > 0 && member.link.down_rate > 0;
    });
  };
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  std::atomic<uint64_t> last = kNone;
  RunRanks([&](uint32_t rank) {
    const worker::JoinedSession session(Options(rank), TwoTensors(), std::string(32, 'a'));
    ASSERT_TRUE(session.ok()) << session.status();
    std::vector<float> w(4500), b(5);
    for (uint64_t step = 1; step <= last; ++step) {
      // No rank is more than one step ahead of this rank.
      if (rank == 0 && last == kNone && all_known()) last = step + 1;
      ASSERT_TRUE(session->Submit(1, b).ok());
      ASSERT_TRUE(session->Submit(0, w).ok());
      ASSERT_TRUE(session->Wait().ok());
      ASSERT_TRUE(session->Apply(0, absl::MakeSpan(w)).ok());
    }
    EXPECT_TRUE(session->Leave().ok());
  });
  EXPECT_TRUE(AwaitOutcome(0).ok());
  for (const std::unique_ptr<server::Server>& server : servers_) {
    const server::LinkStats links = server->Links();
    ASSERT_EQ(links.ranks.size(), kWorkers);
    uint64_t requests = 0;
    for (const uint64_t count : links.queue_counts) requests += count;
    EXPECT_EQ(requests, server->Stats().contributions) << "a probe is not a contribution";
    EXPECT_GT(links.queue_seconds, 0);
  }
}

TEST_F(SessionTest, SparseStepsGiveAllRanksTheSame) {
  StartServers(ThreeWorkerJob("topk:5%+int4"));
  std::vector<std::vector<float>> totals(kWorkers, std::vector<float>(4500));
  RunRanks([&](uint32_t rank) {
    const worker::JoinedSession session(Options(rank), TwoTensors(), std::string(32, 'a'));
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE(session.info().parameters_agree);
    std::vector<float> w(4500), b(5, 1);
    for (int step = 1; step <= 20; ++step) {
      for (size_t i = 0; i < w.size(); ++i) {
        w[i] = static_cast<float>((i * 31 + rank * 7 + step) % 101) - 50;
      }
      ASSERT_TRUE(session->Submit(1, b).ok());
      ASSERT_TRUE(session->Submit(0, w).ok());
      ASSERT_TRUE(session->Wait().ok());
      ASSERT_TRUE(session->Apply(0, absl::MakeSpan(w)).ok());
      for (size_t i = 0; i < w.size(); ++i) totals[rank][i] += w[i];
    }
    EXPECT_TRUE(session->Leave().ok());
  });
  EXPECT_EQ(totals[1], totals[0]);
  EXPECT_EQ(totals[2], totals[0]);
  EXPECT_TRUE(AwaitOutcome(0).ok());
  const server::ShardStats stats = servers_[1]->Stats();
  EXPECT_GT(stats.dense_bytes_in, 20 * stats.bytes_in);
}

TEST_F(SessionTest, BuffersBecomeTheExactMeanWhereTheyAreDue) {
  job::JobSpec job = ThreeWorkerJob("topk:5%+int4");
  job.exchange.buffer_sync_interval = 4;
  StartServers(job);
  protocol::TensorTable table = TwoTensors();
  table.push_back(
      {.name = "mean", .shape = {70}, .strides = {}, .role = protocol::TensorRole::kBuffer});
  constexpr int kSteps = 10;
  // The rank's buffer before and after the exchange, by step and rank.
  std::vector<std::vector<std::vector<float>>> local(kSteps + 1), after(kSteps + 1);
  for (int step = 0; step <= kSteps; ++step) local[step].resize(kWorkers);
  after = local;
  RunRanks([&](uint32_t rank) {
    const worker::JoinedSession session(Options(rank), table,
                                        std::string(32, static_cast<char>('a' + rank)));
    ASSERT_TRUE(session.ok()) << session.status();
    std::vector<float> w(4500), b(5), mean(70, 0.1f * static_cast<float>(rank + 1));
    const std::vector<absl::Span<float>> all = {absl::MakeSpan(w), absl::MakeSpan(b),
                                                absl::MakeSpan(mean)};
    ASSERT_TRUE(session->AgreeOnParameters(all).ok());
    EXPECT_EQ(mean, std::vector<float>(70, 0.1f));
    for (int step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < mean.size(); ++i) {
        mean[i] = 0.9f * mean[i] + 0.1f * static_cast<float>(rank * 70 + i + step) / 7;
      }
      local[step][rank] = mean;
      w.assign(w.size(), static_cast<float>(rank) + 0.5f);
      const bool due = session->BuffersDue();
      EXPECT_EQ(due, step % 4 == 0);
      ASSERT_TRUE(session->Submit(1, b).ok());
      ASSERT_TRUE(session->Submit(0, w).ok());
      EXPECT_EQ(session->BuffersDue(), due);
      if (due) {
        ASSERT_TRUE(session->Submit(2, mean).ok());
      }
      const auto result = session->Wait();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->n_min, 3u);
      EXPECT_EQ(result->buffers_averaged, due);
      for (uint32_t tensor = 0; tensor < 3; ++tensor) {
        ASSERT_TRUE(session->Apply(tensor, all[tensor]).ok());
      }
      after[step][rank] = mean;
    }
    EXPECT_TRUE(session->Leave().ok());
  });
  for (int step = 1; step <= kSteps; ++step) {
    SCOPED_TRACE(step);
    std::vector<float> mean(70);
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] = (local[step][0][i] + local[step][1][i] + local[step][2][i]) / 3;
    }
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      EXPECT_EQ(after[step][rank], step % 4 == 0 ? mean : local[step][rank]);
    }
    EXPECT_NE(local[step][0], local[step][1]);
  }
  EXPECT_TRUE(AwaitOutcome(0).ok());
}

TEST_F(SessionTest, ABufferThatIsMissingWhereItIsDueIsNamed) {
  job::JobSpec job = ThreeWorkerJob("none");
  job.exchange.buffer_sync_interval = 1;
  StartServers(job);
  protocol::TensorTable table = TwoTensors();
  table.push_back(
      {.name = "mean", .shape = {7}, .strides = {}, .role = protocol::TensorRole::kBuffer});
  RunRanks([&](uint32_t rank) {
    const worker::JoinedSession session(Options(rank), table, std::string(32, 'a'));
    ASSERT_TRUE(session.ok()) << session.status();
    const std::vector<float> w(4500), b(5);
    ASSERT_TRUE(session->Submit(1, b).ok());
    ASSERT_TRUE(session->Submit(0, w).ok());
    const absl::Status status = session->Wait().status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("before mean was submitted"), HasSubstr("BuffersDue")));
  });
}

TEST_F(SessionTest, AWorkerThatGivesUpIsTheReasonForAll) {
  StartServers(ThreeWorkerJob("none"));
  RunRanks([&](uint32_t rank) {
    const worker::JoinedSession session(Options(rank), TwoTensors(), std::string(32, 'a'));
    ASSERT_TRUE(session.ok()) << session.status();
    if (rank == 1) {
      session->Abandon("disk full");
      return;
    }
    const std::vector<float> w(4500, 1), b(5, 1);
    // Any of these calls may report the end.
    absl::Status status = session->Submit(1, b);
    if (status.ok()) status = session->Submit(0, w);
    if (status.ok()) status = session->Wait().status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("disk full"));
  });
  EXPECT_THAT(std::string(AwaitOutcome(0).message()), HasSubstr("gave up: disk full"));
  EXPECT_THAT(std::string(AwaitOutcome(1).message()), HasSubstr("gave up: disk full"));
}

}  // namespace
}  // namespace sluice
