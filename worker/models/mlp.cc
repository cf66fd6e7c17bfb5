// SPDX-License-Identifier: Apache-2.0
#include "worker/models/mlp.h"

#include <torch/torch.h>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;

class Mlp final : public Model {
 public:
  Mlp(const std::vector<uint32_t>& hidden, const SampleShape& shape) {
    int64_t in = int64_t{shape.channels} * shape.height * shape.width;
    for (const uint32_t width : hidden) in = Add(in, width);
    Add(in, shape.classes);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = inputs.flatten(1);
    for (size_t i = 0; i + 1 < layers_.size(); ++i) x = torch::relu(layers_[i]->forward(x));
    return layers_.back()->forward(x);
  }

  std::vector<std::string> EdgeWeights() const override {
    return {absl::StrCat("fc", layers_.size(), ".weight")};
  }

 private:
  int64_t Add(int64_t in, int64_t out) {
    layers_.push_back(register_module(absl::StrCat("fc", layers_.size() + 1), nn::Linear(in, out)));
    return out;
  }

  std::vector<nn::Linear> layers_;
};

}  // namespace

std::shared_ptr<Model> MakeMlp(const std::vector<uint32_t>& hidden, const SampleShape& shape) {
  return std::make_shared<Mlp>(hidden, shape);
}

}  // namespace sluice::worker
