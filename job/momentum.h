// SPDX-License-Identifier: Apache-2.0
// Computes the momentum of a job's optimizer when gradients are delayed, because codecs hold values
// back or because workers do not wait for each other. Momentum amplifies delay (docs/control.md).
// The rule is a table over codecs, because the measured ratio of residual to gradient does not
// predict which codecs need a lower momentum: the ratio is 1.05 for ternary, which needs it most,
// and 2.8 for topk:1%. Pure.
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

// Upper limit for the momentum with codecs that hold values back. Measurements with 0.5 were within
// noise of dense training.
inline constexpr double kCodedMomentum = 0.5;

// Returns the optimizer's momentum. For adam, adamw and muon, beta1 acts as the momentum.
double MomentumOf(const OptimizerSpec& optimizer);

// Returns the key of a job file that sets it.
absl::string_view MomentumKey(const OptimizerSpec& optimizer);

// Upper limits for the momentum of a job.
struct MomentumRange {
  double base = 0;                // The job file's value, used when nothing is delayed.
  double coded = kCodedMomentum;  // Upper limit with codecs that hold back much of a gradient.
  double most = 1;                // Upper limit because of staleness, with any codec.
};
// Returns the limits. For local steps, only the base applies, because a worker's own steps have no
// delay.
MomentumRange MomentumRangeOf(const JobSpec& spec);

// Returns the momentum if all tensors have this codec. The result is
// - base, for codecs that send every value in every step or that discard the values they leave out,
// - min(base, coded), for `sign`, `onebit`, `ternary`, sketches, and densities up to 10 %, and
// - log-linear in the density between 10 % and 50 %, where it reaches base.
double MomentumWith(const compress::CodecSpec& codec, const MomentumRange& range);

// Returns the momentum if each tensor has a codec of its own; `elements` are the tensors' element
// counts. The result is the smallest momentum among the tensors with more than 1 % of all elements.
// Buffers must not be included.
double MomentumWith(absl::Span<const compress::CodecSpec> codecs,
                    absl::Span<const uint64_t> elements, const MomentumRange& range);

// Returns the largest allowed momentum for a mean staleness, which is the number of versions by
// which a contribution lags.
double MomentumAtStaleness(double staleness);

// Returns the momentum of all workers for all tensors in a step. `plan` is null if no plan is in
// force.
double JobMomentum(const JobSpec& spec, const protocol::TensorTable& table,
                   const protocol::CompressionPlan* plan = nullptr);

// Returns JobMomentum without a plan if the shards run the job's optimizer. Returns no value if the
// shards have no optimizer or, with local steps, a different one.
std::optional<double> ShardMomentum(const JobSpec& spec, const protocol::TensorTable& table);

// Returns the factor for the learning rate of the job file's schedule. For sgd and rmsprop, the
// factor keeps rate / (1 - momentum) constant. For Adam-like rules the factor is 1, because beta1
// averages gradients and does not amplify them.
double RateFactor(const OptimizerSpec& optimizer, double momentum);

// Returns the factor for an optimizer's momentum buffers when its momentum changes from `before` to
// `now`, after `updates` updates and before the next one. The factor ensures that no step is longer
// than its neighbours. With sgd and rmsprop, a buffer is about gradient / (1 - momentum). With
// Adam-like rules, a buffer is an average that is later divided by 1 - momentum^updates. Both
// momenta must be in [0, 1).
double BufferFactor(const OptimizerSpec& optimizer, uint64_t updates, double before, double now);

// Describes the job's momentum and the reason for it, as far as the job file determines them
// without the model: "momentum 0.5 (of 0.9): topk:1%+int4 up delays gradients". Returns an empty
// string if the momentum does not change.
std::string MomentumNote(const JobSpec& spec);

}  // namespace sluice::job
