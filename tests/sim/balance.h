// SPDX-License-Identifier: Apache-2.0
// Balance compares the total that one chunk's sender was to send with the total that it sent. Error
// feedback loses nothing: their difference is the sender's final residual.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "compress/codec_spec.h"

namespace sluice {

// Returns whether the sent values and the residual add up to the gradients under any schedule. They
// do not for a sketch, which is decoded only after the sum, and for frames that need earlier
// frames.
inline bool Balances(const compress::CodecSpec& spec) {
  if (spec.codec == compress::CodecId::kCountSketch || spec.codec == compress::CodecId::kLsh) {
    return false;
  }
  return spec.codec == compress::CodecId::kNone ||
         spec.compensator.id == compress::CompensatorId::kErrorFeedback;
}

struct Balance {
  std::vector<double> wanted;  // The sum of gradients or means, by element.
  std::vector<double> got;     // The sum of the decoded frames, by element.
  double magnitude = 0;        // The largest absolute value in the input.

  void Want(absl::Span<const float> values) {
    wanted.resize(values.size());
    got.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      wanted[i] += values[i];
      magnitude = std::max(magnitude, std::abs(double{values[i]}));
    }
  }
  void Got(absl::Span<const float> decoded) {
    got.resize(decoded.size());
    for (size_t i = 0; i < decoded.size(); ++i) got[i] += decoded[i];
  }
  // Returns an empty string if the totals agree up to rounding.
  std::string WhatIsOff(absl::Span<const float> residual, uint64_t steps) const {
    const double allowed = 1e-5 * magnitude * static_cast<double>(steps);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double owed = residual.empty() ? 0.0 : residual[i];
      const double off = std::abs(wanted[i] - got[i] - owed);
      if (off > allowed) return absl::StrCat("off by ", off, " at element ", i);
    }
    return "";
  }
};

}  // namespace sluice
