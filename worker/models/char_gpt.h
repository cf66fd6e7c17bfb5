// SPDX-License-Identifier: Apache-2.0
// CharGpt: a decoder-only transformer for text with the architecture of GPT-2: Radford, Wu, Child,
// Luan, Amodei and Sutskever, "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

struct CharGptOptions {
  uint32_t layers = 4;
  uint32_t heads = 4;
  uint32_t width = 128;  // A multiple of heads.
  double dropout = 0;    // Applied to embeddings, attention weights and residual branches.
};

// The scores of each token predict the next token. They depend only on that token and the tokens
// before it. Layers normalize their input, and the output layer shares the embedding's weights.
// Names, order and initial distribution match GPT-2 (wte, wpe, h.0.ln_1 and so on, ln_f), with
// linear weights in LibTorch's layout: [out, in]. At the size of GPT-2's smallest model (12 layers,
// 12 heads, width 768, context 1024, 50,257 tokens) it has the same number of parameters:
// 124,439,808.
std::shared_ptr<Model> MakeCharGpt(const CharGptOptions& options, const SampleShape& shape);

}  // namespace sluice::worker
