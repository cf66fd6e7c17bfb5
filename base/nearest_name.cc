// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

// Longer names get no suggestion, because they are unlikely to be typing mistakes.
constexpr size_t kLongestName = 64;

// Returns the optimal string alignment distance between `a` and `b`.
size_t Edits(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> known) {
  absl::string_view nearest;
  if (name.size() > kLongestName) return nearest;
  size_t fewest = kLongestName;
  for (const absl::string_view candidate : known) {
    const size_t edits = Edits(name, candidate);
    const size_t allowed = std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3);
    if (edits <= allowed && edits < std::max(name.size(), candidate.size()) && edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace sluice
