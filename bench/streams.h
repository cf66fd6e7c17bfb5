// SPDX-License-Identifier: Apache-2.0
// The plain memory streams that codecs are compared with. Each stream has the minimum memory
// traffic of a codec, at the machine's best vector width.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::bench {

// acc[i] = acc[i] * c + gradient[i]. This is the traffic of any encoder with feedback, 12 bytes per
// element.
void ReadModifyWrite(const float* gradient, float* acc, size_t count);

inline constexpr size_t kSumInputs = 8;

// out[i] = the sum of kSumInputs bytes: 10 bytes per element, eight read and two written.
void SumOfBytes(const int8_t* const* inputs, int16_t* out, size_t count);

}  // namespace sluice::bench
