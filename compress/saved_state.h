// SavedState: what one chunk's sender or receiver remembers between steps, as lists of floats by
// name: what a checkpoint has to hold so that a run goes on bit for bit as if never stopped.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace sluice::compress {

// Lists that are empty are left out.
using SavedState = std::map<std::string, std::vector<float>>;

// One list of whoever owns `*values`: it holds `size` floats, or none, which stands for zeros.
struct StateField {
  std::string name;
  std::vector<float>* values = nullptr;
  size_t size = 0;
  bool by_sender = false;  // A receiver's, with a place for each sender.
};

SavedState SaveFields(absl::Span<const StateField> fields);

// Without the lists that have a place for each sender: of other senders than those that are to
// come.
SavedState WithoutSenders(const SavedState& saved, absl::Span<const StateField> fields);

// OK if RestoreFields would put the lists back.
absl::Status CheckFields(const SavedState& saved, absl::Span<const StateField> fields);

// Puts the lists back: those that `saved` does not have become zeros. INVALID_ARGUMENT for a name
// that no field has, another size, or a number that is not finite; then nothing changed.
absl::Status RestoreFields(const SavedState& saved, absl::Span<const StateField> fields);

}  // namespace sluice::compress
