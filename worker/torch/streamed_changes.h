// SPDX-License-Identifier: Apache-2.0
// StreamedChanges: sends the change of a fragment of the parameters while training goes on, and
// adopts the result later. Source: Streaming DiLoCo (arXiv 2501.18512). In its terms, Theta_p are
// the published parameters of fragment p and theta_p the worker's own:
//
//   Submit:  Delta_p = Theta_p - theta_p, from copies that stay unchanged until the exchange ends
//   Adopt:   theta_p = alpha * theta_p + (1 - alpha) * Theta_p, after Theta_p was updated
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/status.h"
#include "protocol/layout.h"
#include "worker/torch/tensor_port.h"

namespace sluice::worker {

// Used from the training thread. Exceptions of LibTorch propagate to the caller. All tensors are
// float32, dense and of the table's layout.
class StreamedChanges {
 public:
  // `parameters` are the worker's own. `merge_alpha` is alpha, at least 0 and below 1.
  StreamedChanges(std::vector<at::Tensor> parameters, double merge_alpha);

  // Begins an exchange of these parts.
  void Begin(std::vector<protocol::TensorPart> parts) { parts_ = std::move(parts); }
  // Submits the change of the parts of the exchange.
  absl::Status Submit(const std::vector<at::Tensor>& published, TensorPort* port);
  // Returns a copy of a buffer's values that stays unchanged until the exchange ends.
  const at::Tensor& Copy(const at::Tensor& buffer);
  // Ends the exchange. `published` has its results. With `discard`, the published values replace
  // the worker's own completely.
  void Adopt(const std::vector<at::Tensor>& published, bool discard);

 private:
  const std::vector<at::Tensor> parameters_;
  const double merge_alpha_;
  std::vector<protocol::TensorPart> parts_;
  // By tensor: memory for changes, undefined until first use. Only the parts of the exchange have
  // values.
  std::vector<at::Tensor> changes_;
  std::vector<at::Tensor> copies_;  // Of buffers.
};

}  // namespace sluice::worker
