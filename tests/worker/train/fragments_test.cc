// SPDX-License-Identifier: Apache-2.0
// Tests RunTraining and DataParallel in jobs that stream fragments of the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "worker/torch/data_parallel.h"
#include "worker/train/train.h"

namespace sluice::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// A model of two tensors, which are two fragments. MemoryJob's shards set the parameters to the
// mean of the workers' parameters.
class StreamTest : public ::testing::Test {
 protected:
  void Join(double merge_alpha) {
    const at::NoGradGuard no_grad;
    model_->weight.fill_(1);
    model_->bias.fill_(1);
    session_->SetRate(1);
    auto joined = DataParallel::Join(*model_, session_.get(),
                                     {.shards_update = true,
                                      .sends_weights = true,
                                      .streams = true,
                                      .merge_alpha = merge_alpha});
    ASSERT_TRUE(joined.ok()) << joined.status();
    parallel_ = *std::move(joined);
  }

  // Trains: adds to all parameters.
  void Add(float amount) {
    const at::NoGradGuard no_grad;
    model_->weight.add_(amount);
    model_->bias.add_(amount);
  }

  std::vector<float> Weight() const { return Values(model_->weight); }
  std::vector<float> Bias() const { return Values(model_->bias); }
  static std::vector<float> Values(const at::Tensor& tensor) {
    const auto* const first = tensor.const_data_ptr<float>();
    return {first, first + tensor.numel()};
  }

  MemoryJob job_{/*ranks=*/1, /*fragments=*/2};
  std::unique_ptr<MemoryJob::RankSession> session_ = job_.MakeSession(0);
  torch::nn::Linear model_{2, 1};
  std::unique_ptr<DataParallel> parallel_;
};

TEST_F(StreamTest, TheResultIsMergedIntoWhatWasTrainedMeanwhile) {
  Join(/*merge_alpha=*/0.25);
  Add(1);  // Both tensors are at 2.
  ASSERT_TRUE(parallel_->BeginExchange(/*skip=*/false).ok());
  EXPECT_THAT(session_->submitted(), ElementsAre(0)) << "only the first fragment is due";
  Add(4);
  ASSERT_TRUE(parallel_->EndExchange().ok());
  // The published weight is 2, and the worker's own is 6: 0.25 * 6 + 0.75 * 2.
  EXPECT_THAT(Weight(), Each(3));
  EXPECT_THAT(Bias(), Each(6)) << "the other fragment stays";
  // The next exchange sends all that the other fragment has changed since the start.
  ASSERT_TRUE(parallel_->BeginExchange(/*skip=*/false).ok());
  EXPECT_THAT(session_->submitted(), ElementsAre(1));
  ASSERT_TRUE(parallel_->EndExchange().ok());
  EXPECT_THAT(Bias(), Each(6));
  EXPECT_THAT(Weight(), Each(3));
  EXPECT_THAT(Values(parallel_->published()[0]), Each(2));
  EXPECT_THAT(Values(parallel_->published()[1]), Each(6));
}

TEST_F(StreamTest, WithoutAPartTheWorkerAdoptsTheResult) {
  Join(/*merge_alpha=*/0);
  Add(1);
  ASSERT_TRUE(parallel_->BeginExchange(/*skip=*/true).ok());
  ASSERT_TRUE(parallel_->EndExchange().ok());
  EXPECT_THAT(Weight(), Each(1)) << "nobody contributed, so the shared value holds";
  EXPECT_THAT(Bias(), Each(2));
}

// A weighted mean with a value that is not finite would never become finite again.
TEST_F(StreamTest, ValuesThatAreNotFiniteAreReplaced) {
  Join(/*merge_alpha=*/0.5);
  Add(std::numeric_limits<float>::quiet_NaN());
  session_->PretendNonFinite("weight");
  session_->LeaveOut(1, {0});
  ASSERT_TRUE(parallel_->BeginExchange(/*skip=*/false).ok());
  ASSERT_TRUE(parallel_->EndExchange().ok());
  EXPECT_THAT(Weight(), Each(1));
}

// The changes that travel must not change while training goes on.
TEST_F(StreamTest, TrainingDoesNotChangeWhatTravels) {
  Join(/*merge_alpha=*/0);
  Add(1);
  ASSERT_TRUE(parallel_->BeginExchange(/*skip=*/false).ok());
  Add(100);
  ASSERT_TRUE(parallel_->EndExchange().ok());
  EXPECT_THAT(Values(parallel_->published()[0]), Each(2));
}

// 32 steps; fragments are exchanged after steps 2, 5, 7, 10 and so on, and adopted a step later.
job::JobSpec StreamingJob() {
  job::JobSpec spec = SmallJob();
  spec.workers = 2;
  spec.exchange.mode = job::Mode::kLocalSgd;
  spec.exchange.compression.layout.fragments = 2;
  spec.local.steps = 5;
  spec.local.fragment_delay = 1;
  spec.local.merge_alpha = 0.25;
  spec.local.outer_optimizer = job::OuterOptimizer::kAverage;
  spec.local.outer_lr = 1;
  spec.optimizer.name = "adam";
  spec.optimizer.momentum = 0;
  spec.optimizer.lr = 0.005;
  return spec;
}

class StreamingRunTest : public ::testing::Test {
 protected:
  // Returns hashes by rank. If `exchange` is not 0, every session is restored after that exchange.
  std::vector<std::string> Run(const job::JobSpec& spec, uint64_t exchange) {
    MakeSessions(spec);
    for (uint32_t rank = 0; exchange > 0 && rank < spec.workers; ++rank) {
      sessions_[rank]->RestoreAfter(exchange, saved_[rank].at(exchange));
    }
    std::vector<std::string> hashes = Train(spec);
    for (uint32_t rank = 0; exchange == 0 && rank < spec.workers; ++rank) {
      saved_[rank] = sessions_[rank]->saved();
    }
    return hashes;
  }

  void MakeSessions(const job::JobSpec& spec) {
    sessions_.clear();
    job_ = std::make_unique<MemoryJob>(spec.workers, spec.exchange.compression.layout.fragments);
    for (uint32_t rank = 0; rank < spec.workers; ++rank) {
      sessions_.push_back(job_->MakeSession(rank));
      sessions_[rank]->CheckpointEvery(1);
    }
  }

  std::vector<std::string> Train(const job::JobSpec& spec) {
    reports_.assign(spec.workers, absl::UnknownError("did not run"));
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < spec.workers; ++rank) {
      threads.emplace_back([&, rank] {
        reports_[rank] = RunTraining(spec, rank, sessions_[rank].get(), {},
                                     Logger(absl::StrCat("worker-", rank)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::string> hashes;
    for (uint32_t rank = 0; rank < spec.workers; ++rank) {
      EXPECT_TRUE(reports_[rank].ok()) << reports_[rank].status();
      hashes.push_back(reports_[rank]->parameters_sha256);
    }
    return hashes;
  }

  std::unique_ptr<MemoryJob> job_;
  std::vector<std::unique_ptr<MemoryJob::RankSession>> sessions_;
  std::vector<absl::StatusOr<TrainReport>> reports_;
  std::map<uint64_t, std::string> saved_[2];
};

// Checkpoints may follow any exchange: within a round, while epochs end, and after the last step. A
// run that continues from one must give the same parameters.
TEST_F(StreamingRunTest, RanksAgreeAndGoOnFromAnyExchange) {
  const job::JobSpec spec = StreamingJob();
  const std::vector<std::string> undisturbed = Run(spec, 0);
  EXPECT_EQ(undisturbed[0], undisturbed[1]);
  EXPECT_EQ(reports_[0]->steps, 16u);
  EXPECT_EQ(reports_[0]->rounds, 8u) << "six exchanges, and one of each fragment at the end";
  EXPECT_GT(reports_[0]->test_accuracy.value(), 0.5);
  ASSERT_THAT(saved_[1], SizeIs(8));
  for (uint64_t exchange = 1; exchange <= 8; ++exchange) {
    EXPECT_EQ(Run(spec, exchange), undisturbed) << "after exchange " << exchange;
    EXPECT_EQ(reports_[0]->rounds, 8u);
  }
}

// A newcomer gets another rank's state. If it also got that rank's local changes, it would send
// them a second time. Here the runs from a checkpoint train with rate 0, so that only changes from
// before the checkpoint can be sent. Ranks have equal shared parameters and different changes.
TEST_F(StreamingRunTest, ANewcomerBeginsWithTheSharedParametersOnly) {
  job::JobSpec spec = StreamingJob();
  Run(spec, 0);
  spec.optimizer.lr = 0;
  const std::string all_changes = Run(spec, 3)[0];
  std::vector<std::string> hashes;
  for (const int saved_by : {0, 1}) {
    for (const bool late : {false, true}) {
      MakeSessions(spec);
      for (const auto& session : sessions_) {
        session->RestoreAfter(3, saved_[saved_by].at(3));
        if (late) session->PretendLate(/*step=*/3, /*steps_behind=*/1);
      }
      hashes.push_back(Train(spec)[0]);
      EXPECT_EQ(sessions_[0]->skips(), late ? 1u : 0u);
    }
  }
  EXPECT_NE(hashes[0], hashes[2]) << "the changes of one rank, which has its own state";
  EXPECT_EQ(hashes[1], hashes[3]) << "no changes";
  EXPECT_NE(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], all_changes) << "the changes of both ranks";
}

// A run that adopts at once and has one fragment is local SGD.
TEST_F(StreamingRunTest, WithoutDelayAndOneFragmentItIsLocalSgd) {
  job::JobSpec spec = StreamingJob();
  spec.exchange.compression.layout.fragments = 1;
  spec.local.fragment_delay = 0;
  spec.local.merge_alpha = 0;
  spec.local.steps = 4;
  const std::vector<std::string> blocking = Run(spec, 0);
  EXPECT_EQ(reports_[0]->rounds, 4u);
  const double loss = reports_[0]->test_loss.value();
  spec.local.merge_alpha = 1e-9;
  Run(spec, 0);
  EXPECT_EQ(reports_[0]->rounds, 4u) << "the exchange after the last step closes the job";
  EXPECT_NEAR(reports_[0]->test_loss.value(), loss, 1e-4);
}

// With 65 samples in batches of 16, the second rank has no data for the third step of an epoch.
TEST_F(StreamingRunTest, ARankSkipsOnlyIfItTookNoStepSinceTheFragmentsLastExchange) {
  job::JobSpec spec = StreamingJob();
  spec.data.limit = 65;
  spec.training.batch_size_per_worker = 16;
  spec.local.steps = 2;
  spec.local.fragment_delay = 0;
  const std::vector<std::string> hashes = Run(spec, 0);
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(sessions_[0]->skips(), 0u);
  EXPECT_EQ(sessions_[1]->skips(), 1u) << "the second closing exchange follows two without a step";
}

}  // namespace
}  // namespace sluice::worker
