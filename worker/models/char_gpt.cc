// SPDX-License-Identifier: Apache-2.0
#include "worker/models/char_gpt.h"

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;

constexpr double kDeviation = 0.02;

class Attention final : public nn::Module {
 public:
  explicit Attention(const CharGptOptions& options)
      : options_(options),
        c_attn_(register_module("c_attn", nn::Linear(options.width, int64_t{3} * options.width))),
        c_proj_(register_module("c_proj", nn::Linear(options.width, options.width))) {}

  // Input and output: [n, context, width].
  at::Tensor forward(const at::Tensor& x) {
    const std::vector<at::Tensor> parts = c_attn_->forward(x).chunk(3, /*dim=*/-1);
    const double dropout = is_training() ? options_.dropout : 0;
    const at::Tensor mixed =
        at::scaled_dot_product_attention(ByHead(parts[0]), ByHead(parts[1]), ByHead(parts[2]),
                                         /*attn_mask=*/{}, dropout, /*is_causal=*/true);
    return c_proj_->forward(mixed.transpose(1, 2).reshape(x.sizes()));
  }

 private:
  // [n, heads, context, width / heads].
  at::Tensor ByHead(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), options_.heads, -1}).transpose(1, 2);
  }

  const CharGptOptions options_;
  nn::Linear c_attn_, c_proj_;
};

class FeedForward final : public nn::Module {
 public:
  explicit FeedForward(int64_t width)
      : c_fc_(register_module("c_fc", nn::Linear(width, 4 * width))),
        c_proj_(register_module("c_proj", nn::Linear(4 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) {
    return c_proj_->forward(at::gelu(c_fc_->forward(x), "tanh"));
  }

 private:
  nn::Linear c_fc_, c_proj_;
};

nn::LayerNorm Normalization(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

class CharGptBlock final : public nn::Module {
 public:
  explicit CharGptBlock(const CharGptOptions& options)
      : dropout_(options.dropout),
        ln_1_(register_module("ln_1", Normalization(options.width))),
        attn_(register_module("attn", std::make_shared<Attention>(options))),
        ln_2_(register_module("ln_2", Normalization(options.width))),
        mlp_(register_module("mlp", std::make_shared<FeedForward>(options.width))) {}

  at::Tensor forward(const at::Tensor& inputs) {
    at::Tensor x = inputs + Dropped(attn_->forward(ln_1_->forward(inputs)));
    return x + Dropped(mlp_->forward(ln_2_->forward(x)));
  }

 private:
  at::Tensor Dropped(const at::Tensor& x) const {
    return torch::dropout(x, dropout_, is_training());
  }

  const double dropout_;
  nn::LayerNorm ln_1_;
  std::shared_ptr<Attention> attn_;
  nn::LayerNorm ln_2_;
  std::shared_ptr<FeedForward> mlp_;
};

class CharGpt final : public Model {
 public:
  CharGpt(const CharGptOptions& options, const SampleShape& shape)
      : dropout_(options.dropout),
        wte_(register_module("wte", nn::Embedding(shape.classes, options.width))),
        wpe_(register_module("wpe", nn::Embedding(shape.context, options.width))) {
    nn::ModuleList h;
    for (uint32_t i = 0; i < options.layers; ++i) {
      blocks_.push_back(std::make_shared<CharGptBlock>(options));
      h->push_back(blocks_.back());
    }
    register_module("h", h);
    ln_f_ = register_module("ln_f", Normalization(options.width));
    Initialize();
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor places = torch::arange(inputs.size(1), inputs.options());
    at::Tensor x = wte_->forward(inputs) + wpe_->forward(places);
    x = torch::dropout(x, dropout_, is_training());
    for (const std::shared_ptr<CharGptBlock>& block : blocks_) x = block->forward(x);
    return torch::linear(ln_f_->forward(x), wte_->weight);
  }

  std::vector<std::string> EdgeWeights() const override { return {"wte.weight", "wpe.weight"}; }

 private:
  // The projections that add to the residual stream start with smaller weights in deeper models.
  void Initialize() {
    const torch::NoGradGuard no_grad;
    const double added = kDeviation / std::sqrt(2.0 * static_cast<double>(blocks_.size()));
    for (const auto& entry : named_parameters()) {
      const std::string& name = entry.key();
      if (absl::StrContains(name, "ln_")) continue;  // Keeps LibTorch's ones and zeros.
      if (absl::EndsWith(name, ".bias")) {
        nn::init::zeros_(entry.value());
      } else {
        const bool adds = absl::EndsWith(name, ".c_proj.weight");
        nn::init::normal_(entry.value(), /*mean=*/0, adds ? added : kDeviation);
      }
    }
  }

  const double dropout_;
  nn::Embedding wte_, wpe_;
  std::vector<std::shared_ptr<CharGptBlock>> blocks_;
  nn::LayerNorm ln_f_ = nullptr;
};

}  // namespace

std::shared_ptr<Model> MakeCharGpt(const CharGptOptions& options, const SampleShape& shape) {
  return std::make_shared<CharGpt>(options, shape);
}

}  // namespace sluice::worker
