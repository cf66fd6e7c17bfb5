// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/train/memory_job.h"
#include "worker/torch/data_parallel.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;

TEST(FakeGpuTest, TrainsAsTheCpuDoes) {
  ASSERT_TRUE(torch::cuda::is_available());
  std::vector<at::Tensor> trained[2];
  for (const bool there : {false, true}) {
    const at::Device device(there ? at::kCUDA : at::kCPU);
    torch::manual_seed(3);
    nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 4, 3)), nn::BatchNorm2d(4), nn::ReLU(),
                         nn::Flatten(), nn::Linear(4 * 6 * 6, 5));
    const at::Tensor inputs = torch::randn({7, 1, 8, 8});
    const at::Tensor targets = torch::randint(5, {7});
    model->to(device);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad(false);
      nn::functional::cross_entropy(model->forward(inputs.to(device)), targets.to(device))
          .backward();
      optimizer.step();
    }
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_EQ(parameter.is_cpu(), !there);
      trained[there ? 1 : 0].push_back(parameter.detach().cpu());
    }
    for (const at::Tensor& buffer : model->buffers()) {
      trained[there ? 1 : 0].push_back(buffer.detach().cpu());
    }
  }
  for (size_t i = 0; i < trained[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(trained[0][i], trained[1][i])) << i;
  }
}

// Where training runs, and how its gradients reach the session.
struct Way {
  bool on_gpu = false;
  bool gpu_views = false;
};

std::vector<at::Tensor> Copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

void ExpectEqual(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

nn::Sequential SmallNet(at::ScalarType type) {
  torch::manual_seed(3);
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 4, 3)), nn::BatchNorm2d(4), nn::ReLU(),
                       nn::Flatten(), nn::Linear(4 * 6 * 6, 5));
  if (type == at::kFloat) return model;
  for (const size_t layer : {0, 4}) {
    for (at::Tensor& parameter : model[layer]->parameters()) {
      parameter.set_data(parameter.detach().to(type));
    }
  }
  return model;
}

// Returns parameters and buffers after some steps of a job with one rank.
std::vector<at::Tensor> TrainSmallNet(const Way& way, at::ScalarType type,
                                      DataParallelOptions options) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  if (way.gpu_views) session->AcceptGpuViews();
  session->BufferSyncInterval(2);
  nn::Sequential model = SmallNet(type);
  const at::Device device(way.on_gpu ? at::kCUDA : at::kCPU);
  model->to(device);
  auto parallel = DataParallel::Join(*model, session.get(), options);
  EXPECT_TRUE(parallel.ok()) << parallel.status();
  if (options.shards_update) session->SetRate(0.1f);
  torch::optim::SGD optimizer((*parallel)->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  (*parallel)->ScaleGradients(0.5f);
  for (int step = 0; step < 5; ++step) {
    for (uint32_t pass = 0; pass < options.accumulation_steps; ++pass) {
      const at::Tensor inputs = torch::randn({8, 1, 8, 8}), targets = torch::randint(5, {8});
      at::Tensor x = inputs.to(device).to(type);
      for (size_t layer = 0; layer < 5; ++layer) {
        x = layer == 0   ? model[0]->as<nn::Conv2d>()->forward(x)
            : layer == 1 ? model[1]->as<nn::BatchNorm2d>()->forward(x.to(at::kFloat)).to(type)
            : layer == 2 ? x.relu()
            : layer == 3 ? x.flatten(1)
                         : model[4]->as<nn::Linear>()->forward(x);
      }
      at::Tensor loss = nn::functional::cross_entropy(x.to(at::kFloat), targets.to(device));
      // In this step, gradients overflow.
      if (options.atomic_step && step == 2) loss = loss * INFINITY;
      loss.backward();
    }
    const absl::StatusOr<StepResult> result = (*parallel)->Synchronize();
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*parallel)->overflowed().empty(), !options.atomic_step || step != 2);
    if (!options.shards_update && (*parallel)->overflowed().empty()) optimizer.step();
    (*parallel)->CopyMastersToModule();
    optimizer.zero_grad(false);
    for (const at::Tensor& parameter : model->parameters()) {
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
    }
  }
  EXPECT_EQ(session->gpu_views() > 0, way.gpu_views);
  std::vector<at::Tensor> trained = Copies(model->parameters());
  for (at::Tensor& tensor : Copies(model->buffers())) trained.push_back(std::move(tensor));
  for (at::Tensor& tensor : Copies((*parallel)->parameters())) trained.push_back(std::move(tensor));
  return trained;
}

TEST(GpuParallelTest, TrainsAsOnTheCpu) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const DataParallelOptions& options :
         {DataParallelOptions{}, DataParallelOptions{.accumulation_steps = 2},
          DataParallelOptions{.atomic_step = true}, DataParallelOptions{.shards_update = true}}) {
      SCOPED_TRACE(testing::Message()
                   << c10::toString(type) << (options.atomic_step ? ", atomic" : "")
                   << (options.shards_update ? ", shards update" : "") << ", passes "
                   << options.accumulation_steps);
      const std::vector<at::Tensor> wanted = TrainSmallNet({}, type, options);
      ExpectEqual(TrainSmallNet({.on_gpu = true}, type, options), wanted);
      ExpectEqual(TrainSmallNet({.on_gpu = true, .gpu_views = true}, type, options), wanted);
    }
  }
}

TEST(GpuParallelTest, RanksThatDifferAgreeOnTheFirst) {
  MemoryJob job(2);
  std::vector<at::Tensor> trained[2];
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto session = job.MakeSession(rank);
      nn::Linear model(3, 4);
      {
        const at::NoGradGuard no_grad;
        model->weight.fill_(rank + 1);
        model->bias.fill_(rank + 1);
      }
      // Each rank uses a different device.
      if (rank == 1) model->to(at::kCUDA);
      auto parallel = DataParallel::Join(*model, session.get());
      ASSERT_TRUE(parallel.ok()) << parallel.status();
      trained[rank] = Copies(model->parameters());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  ExpectEqual(trained[0], trained[1]);
  EXPECT_TRUE(torch::equal(trained[1][0], torch::ones({4, 3})));
}

TEST(GpuParallelTest, AModelOnTwoDevicesIsRefusedByName) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  nn::Sequential model(nn::Linear(3, 4), nn::Linear(4, 2));
  model[1]->to(at::kCUDA);
  const absl::Status status = DataParallel::Join(*model, session.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("parameter 1.weight is on cuda:0, others are"));
  nn::Sequential normed(nn::Linear(3, 4), nn::BatchNorm1d(4));
  normed[1]->as<nn::BatchNorm1d>()->running_mean.set_data(torch::zeros({4}).to(at::kCUDA));
  EXPECT_THAT(DataParallel::Join(*normed, session.get()).status().message(),
              testing::AllOf(testing::HasSubstr("buffer 1.running_mean is on cuda:0"),
                             testing::HasSubstr("not on cpu")));
}

}  // namespace
}  // namespace sluice::worker
