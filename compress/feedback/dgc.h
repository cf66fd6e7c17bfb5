// SPDX-License-Identifier: Apache-2.0
// Deep Gradient Compression (Lin et al. 2018): error feedback with a momentum that the sender
// keeps. It is for sparse codecs, and the optimizer must have no momentum. Per element and step:
//
//   u = beta * u + f * gradient      (f = 1, or less if the gradient is clipped)
//   the codec encodes v + u;  v = (v + u) - decoded
//   u = 0 where decoded != 0         (factor masking)
//
// Conservation: sum of decoded frames + v == sum of u, within fp32 rounding, where u is the value
// that the codec received. Masking drops the amounts that an element's momentum would have added
// later, but never values that wait in v. With beta = 0 and without clipping, DGC equals error
// feedback, bit for bit.
//
// Clipping: a gradient whose norm exceeds `clip` times the usual norm is scaled down to that limit.
// The usual norm of a chunk is a moving average. It starts with the norm of the first gradient that
// is not zero; each later gradient changes it to 0.9 * usual + 0.1 * norm (after clipping).
// Therefore the limit adapts to a permanent change of the norm within a few dozen steps.
//
// State: 8 bytes per element and one float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "compress/codec_spec.h"
#include "compress/feedback/compensator.h"

namespace sluice::compress {

std::unique_ptr<Compensator> MakeDgc(const CompensatorSpec& spec, size_t count);

inline constexpr double kWarmupDensity = 0.25;  // Density of the first step.

// Returns the density of steps 1, 2, and so on. It falls by a constant factor per step, from a
// quarter in step 1 to `density` in step warmup + 1, and then stays there. Returns `density` if
// `warmup` is 0 or `density` is at least a quarter. The result has the same bits on every machine.
double WarmupDensity(double density, uint64_t step, uint32_t warmup);

}  // namespace sluice::compress
