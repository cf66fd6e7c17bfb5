// Deep Gradient Compression (Lin et al. 2018): error feedback of a momentum that the sender keeps.
// For sparse codecs, with no momentum in the optimizer. Per element and step:
//
//   u = beta * u + f * gradient      (f = 1, or below it where the gradient is clipped)
//   the codec encodes v + u;  v = (v + u) - decoded
//   u = 0 where decoded != 0         (factor masking)
//
// Conservation: sum of decoded frames + v == sum of u, within fp32 rounding, u as the codec saw it.
// Masking drops what an element's momentum would have added later, never what waits in v. With
// beta = 0 and no clipping it is error feedback, bit for bit.
//
// Clipping: a gradient whose norm is above `clip` times the usual one is scaled down to that. The
// usual norm of a chunk is a moving average: that of the first gradient that is not zero, then
// 0.9 * usual + 0.1 * norm (after clipping) for every further one. A norm that has changed for good
// is so let through within some tens of steps.
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

inline constexpr double kWarmupDensity = 0.25;  // Of the first step.

// The density of step 1, 2, ...: from a quarter in step 1 down to `density` in step warmup + 1 by
// equal factors; `density` from then on, if warmup is 0 or if it is no smaller than a quarter. The
// same bits on every machine.
double WarmupDensity(double density, uint64_t step, uint32_t warmup);

}  // namespace sluice::compress
