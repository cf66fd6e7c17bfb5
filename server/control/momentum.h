// Momentum that goes with a plan: codecs that send late want less of it, since momentum amplifies
// delay (docs/compression.md). A table over codecs, not a measure: residual over gradient reads
// 1.05 for ternary, which needs the change most, and 2.8 for topk:1%.
#pragma once

#include "absl/types/span.h"
#include "server/control/plan.h"

namespace sluice {

// What coded tensors have at most; 0.5 was measured to be within noise of dense.
inline constexpr double kCodedMomentum = 0.5;

// The momentum of a job whose file says `base`, in [0, 1), with this codec on all tensors: `base`
// with 4 bits and more; min(base, coded) with fewer, or where values wait for their turn at a
// density up to 10 %; log-linear in density from there to `base` at 50 %.
double MomentumWith(const CodecSpec& spec, double base, double coded = kCodedMomentum);

// Of a whole choice: the least that any tensor above 1 % of the parameters wants, in either
// direction, for any rank. One for the job. `coded` is the job file's where it names one by hand.
double MomentumFor(const Choice& choice, absl::Span<const ControlledTensor> tensors, double base,
                   double coded = kCodedMomentum);

// Of workers that do not wait for each other: staleness is delay, too. `staleness`: how many
// versions behind a contribution is, on average.
double MomentumWithStaleness(double momentum, double staleness);

// By what to multiply every momentum buffer, in the step from which on `now` holds, so that it does
// not jump: a buffer is about gradient / (1 - momentum). Both are in [0, 1).
double BufferFactor(double before, double now);

// By what to multiply SGD's rate so that rate / (1 - momentum) stays what the job file's was.
// Adam-like rules keep theirs: their beta1 averages, and does not amplify.
double SgdRateFactor(double base, double now);

}  // namespace sluice
