// SPDX-License-Identifier: Apache-2.0
// Bit allocation: divides the bytes of a step among tensors so that the loss is smallest.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/control/policy_decision.h"

namespace sluice::server {

struct Spent {
  Coding coding;
  double error = 0;  // Expected share of the energy that is lost, weighted by tensor; 0 to 1.
};

struct SparseAllocation {
  compress::CodecSpec sparse;
  double density_min = 1e-4;
  double density_max = 0.25;
};
// Gives all compressed tensors the sparse codec of `options`. The density is the largest one in
// [density_min, density_max] whose bytes fit, or density_min if none fits. The sender turns this
// density into one threshold over all of its tensors.
Spent AllocateByDensity(absl::Span<const ControlledTensor> tensors, const SparseAllocation& options,
                        double bytes);

// Gives each tensor the candidate with the least error + lambda x bytes. Uses the smallest lambda
// for which all tensors fit; if nothing fits, uses the cheapest candidates. Assumes that all
// elements have the same magnitude. Fails with INVALID_ARGUMENT if there is no candidate or if
// PriceOf fails for one.
absl::StatusOr<Spent> SpendOnCodecs(absl::Span<const ControlledTensor> tensors,
                                    absl::Span<const compress::CodecSpec> candidates, double bytes);

// Encodes every compressed tensor with `spec` and the others with fp16 (`none` if `spec` is
// `none`).
absl::StatusOr<Spent> SpendEvenly(absl::Span<const ControlledTensor> tensors,
                                  const compress::CodecSpec& spec);

}  // namespace sluice::server
