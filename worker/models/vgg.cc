// SPDX-License-Identifier: Apache-2.0
#include "worker/models/vgg.h"

#include <torch/torch.h>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;

// A stage of 3×3 convolutions, followed by max pooling that halves the image. The convolutions have
// `width` times as many channels as those of the first stage.
struct Stage {
  int convolutions;
  int64_t width;
};
constexpr Stage kStages[] = {{2, 1}, {2, 2}, {3, 4}, {3, 8}, {3, 8}};
constexpr int64_t kPooledSide = 7;

nn::ReLU InPlaceRelu() { return nn::ReLU(nn::ReLUOptions(/*inplace=*/true)); }

// The members of both Sequentials are named by position, as in torchvision.
class Vgg16 final : public Model {
 public:
  Vgg16(const VggOptions& options, const SampleShape& shape) {
    int64_t channels = shape.channels;
    for (const Stage& stage : kStages) {
      for (int i = 0; i < stage.convolutions; ++i) {
        const int64_t out = stage.width * options.width;
        features_->push_back(nn::Conv2d(nn::Conv2dOptions(channels, out, 3).padding(1)));
        if (options.batch_norm) features_->push_back(nn::BatchNorm2d(out));
        features_->push_back(InPlaceRelu());
        channels = out;
      }
      features_->push_back(nn::MaxPool2d(2));
    }
    const int64_t flat = channels * kPooledSide * kPooledSide;
    classifier_->push_back(nn::Linear(flat, options.hidden));
    classifier_->push_back(InPlaceRelu());
    classifier_->push_back(nn::Dropout(options.dropout));
    classifier_->push_back(nn::Linear(options.hidden, options.hidden));
    classifier_->push_back(InPlaceRelu());
    classifier_->push_back(nn::Dropout(options.dropout));
    classifier_->push_back(nn::Linear(options.hidden, shape.classes));
    register_module("features", features_);
    register_module("classifier", classifier_);
    Initialize();
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor x = features_->forward(inputs);
    return classifier_->forward(
        torch::adaptive_avg_pool2d(x, {kPooledSide, kPooledSide}).flatten(1));
  }

  std::vector<std::string> EdgeWeights() const override {
    return {absl::StrCat("classifier.", classifier_->size() - 1, ".weight")};
  }

 private:
  void Initialize() {
    const torch::NoGradGuard no_grad;
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<nn::Conv2d>(); conv != nullptr) {
        nn::init::kaiming_normal_(conv->weight, /*a=*/0, torch::kFanOut, torch::kReLU);
        nn::init::zeros_(conv->bias);
      } else if (auto* linear = module->as<nn::Linear>(); linear != nullptr) {
        nn::init::normal_(linear->weight, /*mean=*/0, /*std=*/0.01);
        nn::init::zeros_(linear->bias);
      }
    }
  }

  nn::Sequential features_;
  nn::Sequential classifier_;
};

}  // namespace

std::shared_ptr<Model> MakeVgg16(const VggOptions& options, const SampleShape& shape) {
  return std::make_shared<Vgg16>(options, shape);
}

}  // namespace sluice::worker
