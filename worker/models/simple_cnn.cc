// SPDX-License-Identifier: Apache-2.0
#include "worker/models/simple_cnn.h"

#include <torch/torch.h>

namespace sluice::worker {
namespace {

namespace nn = torch::nn;

class SimpleCnn final : public Model {
 public:
  explicit SimpleCnn(const SampleShape& shape)
      : conv1_(register_module("conv1",
                               nn::Conv2d(nn::Conv2dOptions(shape.channels, 16, 5).padding(2)))),
        conv2_(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 5).padding(2)))),
        fc1_(register_module(
            "fc1", nn::Linear(int64_t{32} * (shape.height / 4) * (shape.width / 4), 128))),
        fc2_(register_module("fc2", nn::Linear(128, shape.classes))) {}

  // ReLU and max pooling commute. ReLU after pooling processes a quarter of the elements.
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = torch::relu(torch::max_pool2d(conv1_->forward(inputs), 2));
    x = torch::relu(torch::max_pool2d(conv2_->forward(x), 2));
    return fc2_->forward(torch::relu(fc1_->forward(x.flatten(1))));
  }

  std::vector<std::string> EdgeWeights() const override { return {"fc2.weight"}; }

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_;
};

}  // namespace

std::shared_ptr<Model> MakeSimpleCnn(const SampleShape& shape) {
  return std::make_shared<SimpleCnn>(shape);
}

}  // namespace sluice::worker
