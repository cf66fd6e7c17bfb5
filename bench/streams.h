// Plain streams over memory: what codecs are measured against. Each does the least that its
// counterpart has to do to memory, at the best vector width of the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::bench {

// acc[i] = acc[i] * c + gradient[i]: the traffic of any encoder with feedback, 12 bytes an element.
void ReadModifyWrite(const float* gradient, float* acc, size_t count);

inline constexpr size_t kSumInputs = 8;

// out[i] = the sum of kSumInputs bytes: 10 bytes an element, read eight times and written once.
void SumOfBytes(const int8_t* const* inputs, int16_t* out, size_t count);

}  // namespace sluice::bench
