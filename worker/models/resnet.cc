// SPDX-License-Identifier: Apache-2.0
#include "worker/models/resnet.h"

#include <torch/torch.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;

// Returns a convolution without a bias, because the following BatchNorm has one.
nn::Conv2d Convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

class ResnetBlock final : public nn::Module {
 public:
  ResnetBlock(int64_t in, int64_t width, int64_t stride, const ResNetOptions& options)
      : stride_(stride) {
    const int64_t out = options.bottleneck ? 4 * width : width;
    if (options.bottleneck) {
      Add(in, width, 1, 1);
      Add(width, width, 3, stride);
      Add(width, out, 1, 1);
    } else {
      Add(in, width, 3, stride);
      Add(width, out, 3, 1);
    }
    if (stride == 1 && in == out) return;
    if (options.padded_shortcuts) {
      channels_of_zeros_ = out - in;
    } else {
      downsample_ =
          nn::Sequential(Convolution(in, out, /*kernel=*/1, stride), nn::BatchNorm2d(out));
      register_module("downsample", downsample_);
    }
  }

  at::Tensor forward(const at::Tensor& inputs) {
    at::Tensor x = inputs;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0) x.relu_();
      x = layers_[i].second->forward(layers_[i].first->forward(x));
    }
    return x.add_(Shortcut(inputs)).relu_();
  }

 private:
  void Add(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    const size_t number = layers_.size() + 1;
    nn::Conv2d conv =
        register_module(absl::StrCat("conv", number), Convolution(in, out, kernel, stride));
    layers_.emplace_back(conv, register_module(absl::StrCat("bn", number), nn::BatchNorm2d(out)));
  }

  at::Tensor Shortcut(const at::Tensor& inputs) {
    if (downsample_) return downsample_->forward(inputs);
    at::Tensor x = inputs;
    if (stride_ > 1) {
      x = x.slice(2, std::nullopt, std::nullopt, stride_)
              .slice(3, std::nullopt, std::nullopt, stride_);
    }
    if (channels_of_zeros_ == 0) return x;
    return torch::constant_pad_nd(x, {0, 0, 0, 0, 0, channels_of_zeros_});
  }

  const int64_t stride_;
  std::vector<std::pair<nn::Conv2d, nn::BatchNorm2d>> layers_;
  nn::Sequential downsample_ = nullptr;
  int64_t channels_of_zeros_ = 0;
};

class ResNet final : public Model {
 public:
  ResNet(const ResNetOptions& options, const SampleShape& shape)
      : pools_(!options.small_stem),
        conv1_(register_module("conv1", options.small_stem
                                            ? Convolution(shape.channels, options.width, 3, 1)
                                            : Convolution(shape.channels, options.width, 7, 2))),
        bn1_(register_module("bn1", nn::BatchNorm2d(options.width))) {
    int64_t channels = options.width;
    int64_t width = options.width;
    for (size_t stage = 0; stage < options.blocks.size(); ++stage) {
      nn::ModuleList layer;
      for (uint32_t i = 0; i < options.blocks[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        blocks_.push_back(std::make_shared<ResnetBlock>(channels, width, stride, options));
        layer->push_back(blocks_.back());
        channels = options.bottleneck ? 4 * width : width;
      }
      register_module(absl::StrCat("layer", stage + 1), layer);
      width *= 2;
    }
    fc_ = register_module("fc", nn::Linear(channels, shape.classes));
    Initialize();
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = bn1_->forward(conv1_->forward(inputs)).relu_();
    if (pools_) x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (const std::shared_ptr<ResnetBlock>& block : blocks_) x = block->forward(x);
    return fc_->forward(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  std::vector<std::string> EdgeWeights() const override { return {"fc.weight"}; }

 private:
  // Keeps LibTorch's initial values for BatchNorm (ones and zeros) and the linear layer (uniform).
  void Initialize() {
    const torch::NoGradGuard no_grad;
    for (const auto& module : modules(/*include_self=*/false)) {
      auto* conv = module->as<nn::Conv2d>();
      if (conv == nullptr) continue;
      nn::init::kaiming_normal_(conv->weight, /*a=*/0, torch::kFanOut, torch::kReLU);
    }
  }

  const bool pools_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  std::vector<std::shared_ptr<ResnetBlock>> blocks_;  // Blocks of all stages.
  nn::Linear fc_ = nullptr;
};

}  // namespace

ResNetOptions ResNet20() {
  return {.blocks = {3, 3, 3}, .width = 16, .small_stem = true, .padded_shortcuts = true};
}

ResNetOptions ResNet18(bool small_stem) {
  return {.blocks = {2, 2, 2, 2}, .small_stem = small_stem};
}

ResNetOptions ResNet50(bool small_stem) {
  return {.blocks = {3, 4, 6, 3}, .bottleneck = true, .small_stem = small_stem};
}

uint32_t ResNetMinSide(const ResNetOptions& options) {
  const size_t halvings = options.blocks.size() - 1 + (options.small_stem ? 0 : 2);
  return (1u << halvings) + 1;
}

std::shared_ptr<Model> MakeResNet(const ResNetOptions& options, const SampleShape& shape) {
  return std::make_shared<ResNet>(options, shape);
}

}  // namespace sluice::worker
