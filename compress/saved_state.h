// SPDX-License-Identifier: Apache-2.0
// SavedState: the state of one chunk's sender or receiver between steps, as named lists of floats.
// A checkpoint contains this state, so a restored run continues bit for bit as if it had never
// stopped.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace sluice::compress {

// Empty lists are omitted.
using SavedState = std::map<std::string, std::vector<float>>;

// Name of the list with a compensator's residual.
inline constexpr char kResidualState[] = "residual";

// One list of the state. The owner's `*values` contains `size` floats, or is empty, which
// represents zeros.
struct StateField {
  std::string name;
  std::vector<float>* values = nullptr;
  size_t size = 0;
  bool by_sender = false;  // True for a receiver's list that has entries for each sender.
};

SavedState SaveFields(absl::Span<const StateField> fields);

// Returns `saved` without the lists that have entries for each sender, because these entries do not
// apply to a new set of senders.
SavedState WithoutSenders(const SavedState& saved, absl::Span<const StateField> fields);

// Returns OK if RestoreFields would accept the lists.
absl::Status CheckFields(const SavedState& saved, absl::Span<const StateField> fields);

// Restores the lists. Lists that `saved` does not contain become zeros. Fails with INVALID_ARGUMENT
// and changes nothing if a name is unknown, a size differs, or a number is not finite.
absl::Status RestoreFields(const SavedState& saved, absl::Span<const StateField> fields);

}  // namespace sluice::compress
