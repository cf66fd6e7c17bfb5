// Spending: how the bytes of a step are shared out among tensors so that the least is lost.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/control/octave_histogram.h"
#include "server/control/plan.h"

namespace sluice {

struct Spent {
  Coding coding;
  double error = 0;  // Expected energy of what is lost, weighted, over all energy, weighted.
};

// One threshold for all tensors, with the sparse codec that `sparse` names: the value next to be
// sent is then equally large everywhere, so that no other choice of as many values keeps more.
// Weights count as factors of energy. `rms_scaled`: each tensor's threshold is in proportion to its
// own rms (for Adam-like rules, under which small gradients weigh as much as large ones).
// `histograms`: by tensor; empty: not known, all tensors get one density and no threshold. No more
// than `bytes` are spent unless density_min costs more; densities stay in [density_min,
// density_max], of all tensors together.
struct SparseSpending {
  CodecSpec sparse;
  double density_min = 1e-4;
  double density_max = 0.25;
  bool rms_scaled = false;
};
Spent SpendOnLargest(absl::Span<const ControlledTensor> tensors,
                     absl::Span<const OctaveHistogram> histograms, const SparseSpending& options,
                     double bytes);

// Each tensor gets the one of `candidates` with the least error + lambda x bytes; lambda is the
// least for which all of them fit. The cheapest ones if nothing fits. Errors: INVALID_ARGUMENT of
// PriceOf, or no candidate.
absl::StatusOr<Spent> SpendOnCodecs(absl::Span<const ControlledTensor> tensors,
                                    absl::Span<const OctaveHistogram> histograms,
                                    absl::Span<const CodecSpec> candidates, double bytes);

// Every tensor that is compressed coded with `spec`, the others with fp16 (`none` where it is
// that).
absl::StatusOr<Spent> SpendEvenly(absl::Span<const ControlledTensor> tensors,
                                  const CodecSpec& spec);

}  // namespace sluice
