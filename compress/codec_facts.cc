// SPDX-License-Identifier: Apache-2.0
#include "compress/codec_facts.h"

#include <cmath>

namespace sluice::compress {

double SparseBits(double density, ValueFormat values) {
  if (density <= 0) return 0;
  double value_bits = 16;
  if (values == ValueFormat::kInt8) value_bits = 8;
  if (values == ValueFormat::kInt4) value_bits = 4;
  if (values == ValueFormat::kTwoBit) value_bits = 2;
  if (values == ValueFormat::kSign) value_bits = 1;
  if (density >= 1) return value_bits;
  const double entropy = -density * std::log2(density) - (1 - density) * std::log2(1 - density);
  return density * value_bits + 1.015 * entropy;
}

}  // namespace sluice::compress
