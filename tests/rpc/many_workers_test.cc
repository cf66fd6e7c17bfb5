// SPDX-License-Identifier: Apache-2.0
// Runs as many workers on one shard as a large job has, with all windows full at the same time.
// Memory must stay within the bounds of protocol.md, no lease may expire, no step may hang, and
// sums must be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "server/rpc/server.h"
#include "tests/rpc/await.h"
#include "worker/rpc/remote_client.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// With sanitizers, the test is about ten times as slow, and threads are expensive.
#ifdef SLUICE_SANITIZED
constexpr uint32_t kWorkers = 32;
constexpr uint64_t kSteps = 3;
#else
constexpr uint32_t kWorkers = 256;
constexpr uint64_t kSteps = 5;
#endif
// The threads of all workers share the cores with other tests, so a heartbeat may be late by more
// than in a job.
constexpr absl::Duration kLease = absl::Seconds(120);
constexpr uint32_t kElements = 1 << 15;
constexpr uint32_t kBundleElements = 1 << 11;
constexpr uint64_t kBundles = kElements / kBundleElements;
// The size of a frame, including its header.
constexpr uint64_t kFrameBytes = sizeof(float) * kBundleElements + 64;
constexpr uint64_t kWindowBytes = 4 * kFrameBytes;

// Returns whole numbers, so that their sums are exact.
float GradientAt(uint32_t rank, uint64_t step, uint32_t i) {
  return static_cast<float>((uint64_t{i} * 31 + uint64_t{rank} * 7 + step) % 101) - 50;
}
float MeanAt(uint64_t step, uint32_t i) {
  float sum = 0;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) sum += GradientAt(rank, step, i);
  return sum / kWorkers;
}

// Returns the rank that comes last in the step. The rank is in the first half, so the ranks after
// it cannot be summed before it arrives.
constexpr uint32_t LastToCome(uint64_t step) {
  return static_cast<uint32_t>((step - 1) * kWorkers / (2 * kSteps));
}

// Returns the value of "VmHWM" or "Threads" for this process.
uint64_t OfThisProcess(absl::string_view key) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (!absl::StartsWith(line, key)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar("\t "), absl::SkipEmpty());
    uint64_t value = 0;
    if (words.size() > 1 && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return 0;
}

// The highest values observed while the job ran.
struct Peaks {
  uint64_t held_bytes = 0;   // Bytes held by the shard, including the result log.
  absl::Duration silence{};  // The longest silence of any worker, as the coordinator counts.
  uint64_t threads = 0;
};

class ManyWorkersTest : public ::testing::Test {
 protected:
  ManyWorkersTest() {
    job_.name = "test";
    job_.hash = 9;
    job_.workers = kWorkers;
    job_.shards = 1;
    job_.exchange.compression.uplink.codec = compress::CodecId::kNone;
    job_.exchange.compression.downlink.codec = compress::CodecId::kNone;
    job_.exchange.compression.layout = {.chunk_elements = kBundleElements,
                                        .bundle_elements = kBundleElements};
    job_.server.heartbeat_interval = absl::Milliseconds(500);
    job_.server.lease_timeout = kLease;
    job_.server.window_bytes = kWindowBytes;
  }

  void StartServer() {
    absl::StatusOr<std::unique_ptr<server::Server>> server = server::Server::Start(
        {.job = job_, .shard = 0, .listen = "127.0.0.1:0", .software_version = "1", .job_uid = 77},
        &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Runs each rank on a separate thread.
  static void RunRanks(const std::function<void(uint32_t)>& body) {
    std::vector<std::thread> threads;
    threads.reserve(kWorkers);
    for (uint32_t rank = 0; rank < kWorkers; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
  std::unique_ptr<worker::JobClient> MakeClient(uint32_t rank) {
    worker::RemoteSessionOptions options = worker::OptionsFromJob(job_, server_->address(), rank);
    options.software_version = "1";
    return worker::MakeRemoteClient(std::move(options));
  }
  static protocol::TensorTable OneTensor() {
    return {{.name = "w", .shape = {kElements}, .strides = {}, .dtype = protocol::DType::kFloat32}};
  }

  // In each step, the rank LastToCome waits until `others_are_in` returns true.
  Peaks Train(const std::function<bool(uint64_t step)>& others_are_in) {
    Peaks peaks;
    std::atomic<bool> over = false;
    std::thread watcher([&] { Watch(over, &peaks); });
    RunRanks([&](uint32_t rank) {
      const std::unique_ptr<worker::JobClient> client = MakeClient(rank);
      const auto joined = client->Join(OneTensor(), std::string(32, 'a'));
      ASSERT_TRUE(joined.ok()) << joined.status();
      std::vector<float> values(kElements);
      for (uint64_t step = 1; step <= kSteps; ++step) {
        for (uint32_t i = 0; i < kElements; ++i) values[i] = GradientAt(rank, step, i);
        if (rank == LastToCome(step)) {
          // The loop sleeps, because a busy loop would take a core that the others need.
          while (!others_are_in(step) && !server_->Outcome().has_value()) {
            absl::SleepFor(absl::Milliseconds(2));
          }
        }
        ASSERT_TRUE(joined->session->Submit(0, values).ok());
        const auto result = joined->session->Wait();
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->n_min, kWorkers);
        ASSERT_TRUE(joined->session->Apply(0, absl::MakeSpan(values)).ok());
        for (uint32_t i = rank % 97; i < kElements; i += 97) {
          ASSERT_EQ(values[i], means_[step][i % 101]) << "step " << step << ", element " << i;
        }
      }
      EXPECT_TRUE(joined->session->Leave().ok());
    });
    over = true;
    watcher.join();
    return peaks;
  }
  void Watch(const std::atomic<bool>& over, Peaks* peaks) {
    while (!over) {
      const server::ShardStats stats = server_->Stats();
      peaks->held_bytes = std::max(peaks->held_bytes, stats.held_bytes + stats.log_bytes);
      const server::JobStatus status = *server_->Status();
      for (const server::MemberStatus& member : status.members) {
        if (member.joined && !member.left) {
          peaks->silence = std::max(peaks->silence, member.since_heartbeat);
        }
      }
      peaks->threads = std::max(peaks->threads, OfThisProcess("Threads"));
      absl::SleepFor(absl::Milliseconds(20));
    }
  }
  void Report(const Peaks& peaks) {
    const server::ShardStats stats = server_->Stats();
    std::printf(
        "  %u workers, %lu steps of %u elements: the shard held at most %.1f MB, answered BUSY %lu "
        "times; longest without a heartbeat %.0f ms; process: %lu threads, %.0f MB at most\n",
        kWorkers, kSteps, kElements, static_cast<double>(peaks.held_bytes) * 1e-6,
        stats.refused_busy, absl::ToDoubleMilliseconds(peaks.silence), peaks.threads,
        static_cast<double>(OfThisProcess("VmHWM")) * 1e-3);
    RecordProperty("held_bytes", absl::StrCat(peaks.held_bytes));
    RecordProperty("silence_ms", absl::StrCat(absl::ToInt64Milliseconds(peaks.silence)));
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    AwaitThat([&] { return server_->Outcome().has_value(); });
    server_.reset();
  }

  // By step and by element modulo 101, because gradients repeat after 101 elements.
  const std::vector<std::vector<float>> means_ = [] {
    std::vector<std::vector<float>> means(kSteps + 1);
    for (uint64_t step = 1; step <= kSteps; ++step) {
      for (uint32_t i = 0; i < 101; ++i) means[step].push_back(MeanAt(step, i));
    }
    return means;
  }();
  SteadyClock clock_;
  job::JobSpec job_;
  std::unique_ptr<server::Server> server_;
};

// The memory that Create requires: kReservedBytes for sums and residuals, and kEnough to also hold
// the windows of all ranks.
constexpr uint64_t kReservedBytes = uint64_t{2} * sizeof(float) * kElements;
constexpr uint64_t kEnough = kReservedBytes + kWorkers * kWindowBytes;

TEST_F(ManyWorkersTest, AStepOfAllWaitsForTheLastRankInMemory) {
  StartServer();
  const Peaks peaks = Train([this](uint64_t step) {
    return server_->Stats().contributions == (step * kWorkers - 1) * kBundles;
  });
  Report(peaks);
  EXPECT_EQ(server_->Stats().refused_busy, 0u);
  EXPECT_EQ(server_->Stats().highest_closed_step, kSteps);
  EXPECT_LT(peaks.silence, kLease);
  // Contributions of all ranks to one step, and the results of two steps.
  EXPECT_LE(peaks.held_bytes, (kWorkers + 2) * kBundles * kFrameBytes);
  // Memory is sampled at intervals, so the observed peak is not quite the maximum.
  EXPECT_GE(peaks.held_bytes, kWorkers / 2 * kBundles * sizeof(float) * kBundleElements);
}

TEST_F(ManyWorkersTest, MemoryForTheWindowsIsEnough) {
  job_.server.max_memory = kEnough;
  StartServer();
  std::atomic<uint64_t> busy_before = 0;
  const Peaks peaks = Train([&](uint64_t /*step*/) {
    const uint64_t busy = server_->Stats().refused_busy;
    if (busy <= busy_before + kWorkers) return false;
    busy_before = busy;
    return true;
  });
  Report(peaks);
  EXPECT_EQ(server_->Stats().highest_closed_step, kSteps);
  EXPECT_LT(peaks.silence, kLease);
  // The lowest open bundle of every rank is admitted, however little memory is left.
  EXPECT_LE(kReservedBytes + peaks.held_bytes, kEnough + kWorkers * kFrameBytes);
}

TEST_F(ManyWorkersTest, LessThanThatIsRefusedAndTheErrorSaysHowMuchWouldDo) {
  job_.server.max_memory = kEnough - 1;
  StartServer();
  RunRanks([&](uint32_t rank) {
    const auto joined = MakeClient(rank)->Join(OneTensor(), std::string(32, 'a'));
    EXPECT_THAT(std::string(joined.status().message()),
                HasSubstr(absl::StrCat("needs ", kEnough, " bytes")));
    EXPECT_THAT(std::string(joined.status().message()),
                HasSubstr(absl::StrCat("server.max_memory is ", kEnough - 1)));
  });
}

}  // namespace
}  // namespace sluice
