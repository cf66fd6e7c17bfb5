// SPDX-License-Identifier: Apache-2.0
// Tests buffers of LibTorch modules: DataParallel averages the right ones at the right steps, and
// checkpoints contain them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/worker/train/memory_job.h"
#include "worker/torch/data_parallel.h"
#include "worker/train/optimizers.h"
#include "worker/train/training_state.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

namespace nn = torch::nn;

constexpr uint32_t kRanks = 2;

nn::Sequential Normalized() {
  torch::manual_seed(5);
  nn::Sequential model;
  model->push_back("fc1", nn::Linear(6, 4));
  model->push_back("norm", nn::BatchNorm1d(4));
  model->push_back("fc2", nn::Linear(4, 1));
  return model;
}

// The model and session of one rank.
struct Worker {
  nn::Sequential model = Normalized();
  std::unique_ptr<MemoryJob::RankSession> session;
  std::unique_ptr<DataParallel> parallel;
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  Worker(MemoryJob* job, uint32_t rank) : session(job->MakeSession(rank)) {
    session->BufferSyncInterval(3);
  }

  void Join() {
    auto made = DataParallel::Join(*model, session.get());
    ASSERT_TRUE(made.ok()) << made.status();
    parallel = *std::move(made);
    job::OptimizerSpec spec;
    spec.name = "sgd";
    spec.lr = 0.1;
    spec.momentum = 0.9;
    optimizer = *MakeOptimizer(spec, parallel->parameters());
  }

  StepResult Step(uint32_t rank, uint64_t step) {
    at::Generator draws = at::detail::createCPUGenerator(100 * step + rank);
    const at::Tensor inputs = torch::randn({8, 6}, draws) + static_cast<double>(rank);
    optimizer->zero_grad();
    torch::mse_loss(model->forward(inputs), inputs.sum(1, true)).backward();
    const auto result = parallel->Synchronize();
    EXPECT_TRUE(result.ok()) << result.status();
    optimizer->step();
    return *result;
  }
  TrainedState Trained() { return {.model = TensorsOf(*model), .optimizer = optimizer.get()}; }
  at::Tensor Buffer(const char* name) const { return model->named_buffers()[name]; }
  int64_t Batches() const { return Buffer("norm.num_batches_tracked").item<int64_t>(); }
};

void RunRanks(const std::function<void(uint32_t)>& body) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::unique_ptr<Worker>> JoinedWorkers(
    MemoryJob* job, const std::function<void(Worker*, uint32_t)>& before_join) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    workers.push_back(std::make_unique<Worker>(job, rank));
    before_join(workers.back().get(), rank);
  }
  RunRanks([&](uint32_t rank) { workers[rank]->Join(); });
  return workers;
}

std::vector<at::Tensor> Everything(const Worker& worker) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : worker.model->parameters())
    all.push_back(tensor.detach().clone());
  for (const at::Tensor& tensor : worker.model->buffers()) all.push_back(tensor.clone());
  return all;
}

TEST(BuffersTest, FloatingOnesAreRowsOfTheTableAfterAllParameters) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  const nn::Sequential model = Normalized();
  const auto parallel = DataParallel::Join(*model, session.get());
  ASSERT_TRUE(parallel.ok()) << parallel.status();
  std::vector<std::string> rows;
  for (const protocol::TensorInfo& tensor : (*parallel)->table()) rows.push_back(ToString(tensor));
  ASSERT_THAT(rows, SizeIs(8));
  EXPECT_EQ(rows[5], "fc2.bias [1] float32");
  EXPECT_EQ(rows[6], "norm.running_mean [4] float32 buffer");
  EXPECT_EQ(rows[7], "norm.running_var [4] float32 buffer");
  EXPECT_THAT((*parallel)->parameters(), SizeIs(6));
}

TEST(BuffersTest, BecomeTheMeanWhereTheyAreDueAndDifferInBetween) {
  MemoryJob job(kRanks);
  const auto workers = JoinedWorkers(&job, [](Worker*, uint32_t) {});
  for (uint64_t step = 1; step <= 7; ++step) {
    std::vector<at::Tensor> means(kRanks);
    std::vector<at::Tensor> locals(kRanks);
    RunRanks([&](uint32_t rank) {
      // The value after the forward pass, before Synchronize.
      const at::Tensor buffer = workers[rank]->Buffer("norm.running_mean");
      const auto hook = workers[rank]->model->parameters()[5].register_hook(
          [&, buffer](at::Tensor) { locals[rank] = buffer.clone(); });
      const StepResult result = workers[rank]->Step(rank, step);
      workers[rank]->model->parameters()[5].remove_hook(hook);
      EXPECT_EQ(result.buffers_averaged, step % 3 == 0) << step;
      means[rank] = buffer.clone();
    });
    ASSERT_FALSE(at::equal(locals[0], locals[1]));
    if (step % 3 == 0) {
      EXPECT_TRUE(at::equal(means[0], (locals[0] + locals[1]) / 2)) << step;
      EXPECT_TRUE(at::equal(means[0], means[1])) << step;
    } else {
      EXPECT_TRUE(at::equal(means[0], locals[0])) << step;
      EXPECT_TRUE(at::equal(means[1], locals[1])) << step;
    }
    EXPECT_EQ(workers[0]->parallel->ParametersSha256(), workers[1]->parallel->ParametersSha256());
    EXPECT_EQ(workers[0]->Batches(), static_cast<int64_t>(step));
  }
}

TEST(BuffersTest, ARankWithoutDataGetsTheMeanOfTheOthers) {
  MemoryJob job(kRanks);
  const auto workers = JoinedWorkers(&job, [](Worker*, uint32_t) {});
  for (uint64_t step = 1; step <= 3; ++step) {
    RunRanks([&](uint32_t rank) {
      if (rank == 0 || step < 3) {
        (void)workers[rank]->Step(rank, step);
      } else {
        const auto result = workers[rank]->parallel->Skip();
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_TRUE(result->buffers_averaged);
      }
    });
  }
  EXPECT_TRUE(
      at::equal(workers[0]->Buffer("norm.running_var"), workers[1]->Buffer("norm.running_var")));
  EXPECT_EQ(workers[0]->Batches(), 3);
  EXPECT_EQ(workers[1]->Batches(), 2) << "integer buffers are not averaged";
}

TEST(BuffersTest, AllStartWithThoseOfRankZero) {
  MemoryJob job(kRanks);
  const auto workers = JoinedWorkers(&job, [](Worker* worker, uint32_t rank) {
    worker->Buffer("norm.running_mean").fill_(0.25f * static_cast<float>(rank + 1));
  });
  // Parameters are equal; only the buffers differ.
  EXPECT_FALSE(workers[1]->parallel->joined().parameters_agree);
  EXPECT_TRUE(at::equal(workers[1]->Buffer("norm.running_mean"), torch::full({4}, 0.25f)));
}

TEST(BuffersTest, ARestoredJobEndsWithTheSameBitsOnEveryRank) {
  constexpr uint64_t kSteps = 11;
  std::vector<std::vector<std::string>> saved(kRanks, std::vector<std::string>(kSteps + 1));
  MemoryJob job(kRanks);
  const auto undisturbed =
      JoinedWorkers(&job, [](Worker* worker, uint32_t) { worker->session->CheckpointEvery(4); });
  RunRanks([&](uint32_t rank) {
    Worker& worker = *undisturbed[rank];
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const StepResult result = worker.Step(rank, step);
      EXPECT_EQ(result.buffers_averaged, step % 3 == 0 || step % 4 == 0) << step;
      // States are saved in all steps, including those in which ranks differ, because a program may
      // save at any time.
      saved[rank][step] = SaveTrainingState(worker.Trained(), {.step = step});
    }
  });
  ASSERT_FALSE(at::equal(undisturbed[0]->Buffer("norm.running_mean"),
                         undisturbed[1]->Buffer("norm.running_mean")));
  for (const uint64_t from : {4, 7, 8, 10}) {
    SCOPED_TRACE(from);
    MemoryJob again(kRanks);
    const auto restored = JoinedWorkers(&again, [&](Worker* worker, uint32_t) {
      worker->session->CheckpointEvery(4);
      worker->session->RestoreAfter(from, "");
    });
    RunRanks([&](uint32_t rank) {
      Worker& worker = *restored[rank];
      TrainingCursor cursor;
      const absl::Status status =
          RestoreTrainingState(saved[rank][from], worker.Trained(), &cursor);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(worker.Batches(), static_cast<int64_t>(from));
      for (uint64_t step = from + 1; step <= kSteps; ++step) (void)worker.Step(rank, step);
    });
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<at::Tensor> want = Everything(*undisturbed[rank]);
      const std::vector<at::Tensor> got = Everything(*restored[rank]);
      ASSERT_EQ(want.size(), 9u);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(want[i], got[i])) << i;
    }
  }
}

struct WithBuffer : nn::Module {
  explicit WithBuffer(const at::Tensor& buffer) {
    register_parameter("weight", torch::ones({2}));
    register_buffer("extra", buffer);
  }
};

absl::StatusOr<protocol::TensorTable> TableOf(const at::Tensor& buffer,
                                              const std::vector<std::string>& local = {}) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  const WithBuffer module(buffer);
  const auto parallel = DataParallel::Join(module, session.get(), {.local_buffers = local});
  if (!parallel.ok()) return parallel.status();
  return (*parallel)->table();
}

TEST(BuffersTest, WhatCannotBeAveragedIsNamedAndCanBeLeftOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto problem = [](const at::Tensor& buffer) {
    const auto table = TableOf(buffer);
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(*TableOf(buffer, {"extra"}), SizeIs(1));
    return std::string(table.status().message());
  };
  EXPECT_THAT(problem(torch::ones({2}, at::kDouble)),
              AllOf(HasSubstr("buffer extra is of type Double"), HasSubstr("local_buffers")));
  EXPECT_THAT(problem(torch::full({2}, -infinity)), HasSubstr("extra is not finite (-inf)"));
  EXPECT_THAT(problem(torch::ones({4}).slice(0, 0, 4, 2)), HasSubstr("gaps"));
  EXPECT_THAT(std::string(TableOf(torch::ones({2}), {"extar"}).status().message()),
              HasSubstr("names extar"));
  // These buffers are not averaged.
  EXPECT_THAT(*TableOf(torch::ones({2}, at::kLong)), SizeIs(1));
  EXPECT_THAT(*TableOf(torch::ones({2}, at::kBool)), SizeIs(1));
  EXPECT_THAT(*TableOf(torch::empty({0})), SizeIs(1));
  EXPECT_THAT(*TableOf(at::Tensor()), SizeIs(1));
  EXPECT_THAT(*TableOf(torch::ones({2})), SizeIs(2));
}

}  // namespace
}  // namespace sluice::worker
