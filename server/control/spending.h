// Spending: how the bytes of a step are shared out among tensors so that the least is lost.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/control/plan.h"

namespace sluice::server {

struct Spent {
  Coding coding;
  double error = 0;  // Expected share of the energy that is lost, weighted; 0 to 1.
};

struct SparseSpending {
  compress::CodecSpec sparse;
  double density_min = 1e-4;
  double density_max = 0.25;
};
// All compressed tensors get the sparse codec that `options` names, with the largest density in
// [density_min, density_max] whose bytes fit; density_min if none fits. The sender turns one
// density into one threshold over all of its tensors.
Spent SpendOnDensity(absl::Span<const ControlledTensor> tensors, const SparseSpending& options,
                     double bytes);

// Each tensor gets the one of `candidates` with the least error + lambda x bytes; lambda is the
// least for which all of them fit. The cheapest ones if nothing fits. All elements count as equally
// large. Errors: INVALID_ARGUMENT of PriceOf, or no candidate.
absl::StatusOr<Spent> SpendOnCodecs(absl::Span<const ControlledTensor> tensors,
                                    absl::Span<const compress::CodecSpec> candidates, double bytes);

// Every tensor that is compressed coded with `spec`, the others with fp16 (`none` where it is
// that).
absl::StatusOr<Spent> SpendEvenly(absl::Span<const ControlledTensor> tensors,
                                  const compress::CodecSpec& spec);

}  // namespace sluice::server
