// SPDX-License-Identifier: Apache-2.0
// SyntheticGradients: random gradients with the statistics of training. They are a pure function of
// (seed, worker, step, tensor), so that any number of synthetic workers agree without
// communication.
//
// g[r][c] = tensor scale * row scale * column scale * (signal(step) + noise(worker, step)):
//   tensor scale   log-normal: layers differ by factors of several;
//   row, column    log-normal and fixed: output channels with large errors, inputs with large
//                  activations (a weight's gradient is a sum of products of the two);
//   signal         a slowly turning direction, the same for all workers;
//   noise          of the worker's batch, new in each step; most of the energy;
//   both           normal with a stretched tail (Tukey's h distribution).
// Rows of a word embedding are zero, except for the words of the batch, which are drawn by Zipf's
// law. An embedding that is also the output layer (GPT-2's `wte`) has small gradients in the other
// rows. docs/compression.md compares codecs on these and on recorded gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "protocol/tensor_table.h"

namespace sluice::bench {

struct SyntheticOptions {
  uint64_t seed = 1;
  double tensor_spread = 0.5;  // Standard deviations of the logarithms of scales.
  double row_spread = 0.35;
  double column_spread = 0.45;
  double tail = 0.1;    // h: 0 is normal; the tail falls off as a power of -1 / h.
  double signal = 0.1;  // Share of the energy that all workers have in common.
  uint64_t turn = 64;   // Steps after which the signal is orthogonal to its earlier value.
  double scale = 1e-3;  // Root mean square of a typical tensor.
  double words = 4096;  // Number of tokens in a worker's batch.
};

// Thread-safe (const). Equal on all machines whose exp and erfc round in the same way.
class SyntheticGradients {
 public:
  explicit SyntheticGradients(const protocol::TensorTable& table,
                              const SyntheticOptions& options = {});

  // Sets `gradient` (one float per element of the tensor) to the worker's gradient at that step.
  // Takes about 3 ns per element.
  void Fill(uint32_t worker, uint64_t step, uint32_t tensor, absl::Span<float> gradient) const;
  // Fills all tensors one after the other, in the table's order.
  void FillAll(uint32_t worker, uint64_t step, absl::Span<float> gradients) const;

  const protocol::TensorTable& table() const { return table_; }

 private:
  enum class Kind { kUsual, kWords, kTiedWords };
  struct Tensor {
    Kind kind = Kind::kUsual;
    std::vector<float> rows;     // Scales of the rows, times the tensor's scale.
    std::vector<float> columns;  // Scales.
  };

  float RowFactor(const Tensor& tensor, uint64_t key, size_t row) const;

  const protocol::TensorTable table_;
  const SyntheticOptions options_;
  std::vector<Tensor> tensors_;
  std::vector<float> quantiles_;  // 65,536 quantiles of the unit noise.
};

}  // namespace sluice::bench
