// SPDX-License-Identifier: Apache-2.0
// Muon: Newton–Schulz orthogonalization of the momentum of each matrix (Jordan et al., "Muon: An
// optimizer for hidden layers in neural networks", 2024), with the scale of Liu et al., "Muon is
// Scalable for LLM Training", 2025. All other parameters get AdamW.
#pragma once

#include <torch/optim/adamw.h>

#include <vector>

namespace sluice::worker {

// Maps a matrix [rows, columns] with the singular value decomposition U S V' to about U V': five
// steps of a polynomial of degree 5 bring all singular values near 1. Values below about 1e-3 of
// the matrix's Frobenius norm stay smaller. Returns the same shape and type; zeros stay zeros.
at::Tensor Orthogonalized(const at::Tensor& matrix);

// One step of a matrix W [rows, columns] with the gradient G (tensors of more dimensions count as
// [size(0), all others]):
//   M = beta1 * M + (1 - beta1) * G
//   W = (1 - lr * weight_decay) * W - lr * 0.2 * sqrt(max(rows, columns)) * Orthogonalized(M)
// The factor gives W's change the usual root mean square of a change by AdamW, so that both take
// the same lr. A matrix without a gradient does not change.
class Muon final : public torch::optim::AdamW {
 public:
  // Group 0 has `others`, and group 1 has `matrices`. The options apply to both.
  Muon(std::vector<at::Tensor> matrices, std::vector<at::Tensor> others,
       const torch::optim::AdamWOptions& options);

  // Takes no closure.
  at::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace sluice::worker
