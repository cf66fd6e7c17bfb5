// CharGpt: a decoder-only transformer for text, built as GPT-2: Radford, Wu, Child, Luan, Amodei
// and Sutskever, "Language Models are Unsupervised Multitask Learners", 2019.
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
  double dropout = 0;    // Of embeddings, attention, and what a layer adds.
};

// Each token's scores say what follows it, and depend on it and those before it only. Layers
// normalize first; the output layer is the embedding. Names, order and initial distribution are
// GPT-2's (wte, wpe, h.0.ln_1 and so on, ln_f), with linear weights as LibTorch has them: [out,
// in]. As large as GPT-2's smallest (12 layers, 12 heads, width 768, context 1024, 50,257 tokens)
// it has as many parameters: 124,439,808.
std::shared_ptr<Model> MakeCharGpt(const CharGptOptions& options, const SampleShape& shape);

}  // namespace sluice::worker
