// Balance: of one chunk on one sender, what was to be sent and what was. Feedback loses nothing: it
// ends with a residual that is the difference.
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

// What is sent and the residual add up to the gradients, whatever a schedule does. A sketch is only
// decoded when all are summed.
inline bool Balances(const compress::CodecSpec& spec) {
  if (spec.codec == compress::CodecId::kCountSketch) return false;
  return spec.codec == compress::CodecId::kNone ||
         spec.compensator.id == compress::CompensatorId::kErrorFeedback;
}

struct Balance {
  std::vector<double> wanted;  // Gradients, or means, added up per element.
  std::vector<double> got;     // What was decoded from frames.
  double magnitude = 0;        // The largest value that was wanted.

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
  // Empty: they add up, but for rounding.
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
