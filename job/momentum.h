// The momentum of a job's optimizer where gradients come late, be it that codecs hold values back
// or that workers do not wait for each other: momentum amplifies delay (docs/control.md). A table
// over codecs, not a measure: residual over gradient reads 1.05 for ternary, which needs the change
// most, and 2.8 for topk:1%. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "job/optimizer_spec.h"
#include "protocol/compression_plan.h"
#include "protocol/tensor_table.h"

namespace sluice::job {

struct JobSpec;

// At most, of coded tensors; 0.5 was measured to be within noise of dense.
inline constexpr double kCodedMomentum = 0.5;

// Of an optimizer: beta1 of adam and adamw, which they have for a momentum, else the momentum.
double MomentumOf(const OptimizerSpec& optimizer);

// Between what a job's momentum can be.
struct MomentumRange {
  double base = 0;                // As the job file has it: where nothing comes late.
  double coded = kCodedMomentum;  // At most, where codecs hold much back.
  double most = 1;                // Of a job, whatever its codecs: what staleness leaves of it.
};
// local_sgd: base alone, since nothing of a worker's own steps comes late.
MomentumRange MomentumRangeOf(const JobSpec& spec);

// With this codec on all tensors. base: codecs that send every value in every step, or that forget
// what they leave out. min(base, coded): `sign`, `onebit`, `ternary`, sketches, and densities up to
// 10 %; log-linear in density from there to base at 50 %.
double MomentumWith(const compress::CodecSpec& codec, const MomentumRange& range);

// With one codec for each tensor, of so many elements: the least that any tensor above 1 % of all
// wants. Those of buffers are not to be among them.
double MomentumWith(absl::Span<const compress::CodecSpec> codecs,
                    absl::Span<const uint64_t> elements, const MomentumRange& range);

// Most that a mean staleness allows: how many versions behind a contribution is.
double MomentumAtStaleness(double staleness);

// Of all of a job's workers in a step, one for all tensors; null: no plan holds.
double JobMomentum(const JobSpec& spec, const protocol::TensorTable& table,
                   const protocol::CompressionPlan* plan = nullptr);

// As JobMomentum, where the shards have the job's optimizer and no plan holds; none: they have
// none, or, in local_sgd, another.
std::optional<double> ShardMomentum(const JobSpec& spec, const protocol::TensorTable& table);

// By what to multiply the rate that the job file's schedule has. sgd, rmsprop: such that
// rate / (1 - momentum) stays. Adam-like rules keep theirs: beta1 averages, and does not amplify.
double RateFactor(const OptimizerSpec& optimizer, double momentum);

// By what to multiply an optimizer's momentum buffers when its momentum changes from `before` to
// `now` after so many updates, before the next, so that no step is longer than its neighbours. sgd,
// rmsprop: a buffer is about gradient / (1 - momentum). Adam-like: an average that is to be
// divided by 1 - momentum^updates. Both momenta are in [0, 1).
double BufferFactor(const OptimizerSpec& optimizer, uint64_t updates, double before, double now);

// "momentum 0.5 (of 0.9): topk:1%+int4 up delays gradients": what becomes of a job's momentum and
// why, as far as the job file tells without the model; empty: it stays.
std::string MomentumNote(const JobSpec& spec);

}  // namespace sluice::job
