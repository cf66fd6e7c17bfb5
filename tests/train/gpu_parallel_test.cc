#include <torch/torch.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/fake_gpu.h"

namespace sluice {
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

}  // namespace
}  // namespace sluice
