// SPDX-License-Identifier: Apache-2.0
#include "compress/saved_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"

namespace sluice::compress {
namespace {

absl::Status CheckList(const StateField& field, const std::vector<float>& values) {
  if (values.size() != field.size) {
    return absl::InvalidArgumentError(absl::StrCat("saved ", field.name, " has ", values.size(),
                                                   " elements, should have ", field.size));
  }
  const auto bad = std::find_if_not(values.begin(), values.end(), IsFinite);
  if (bad == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("saved ", field.name, " is not finite: element ",
                                                 bad - values.begin(), " is ", *bad));
}

}  // namespace

SavedState SaveFields(absl::Span<const StateField> fields) {
  SavedState saved;
  for (const StateField& field : fields) {
    if (!field.values->empty()) saved[field.name] = *field.values;
  }
  return saved;
}

SavedState WithoutSenders(const SavedState& saved, absl::Span<const StateField> fields) {
  SavedState rest = saved;
  for (const StateField& field : fields) {
    if (field.by_sender) rest.erase(field.name);
  }
  return rest;
}

absl::Status CheckFields(const SavedState& saved, absl::Span<const StateField> fields) {
  size_t known = 0;
  for (const StateField& field : fields) {
    const auto found = saved.find(field.name);
    if (found == saved.end()) continue;
    ++known;
    absl::Status fits = CheckList(field, found->second);
    if (!fits.ok()) return fits;
  }
  if (known == saved.size()) return absl::OkStatus();
  const auto stray = std::find_if(saved.begin(), saved.end(), [&](const auto& list) {
    return std::none_of(fields.begin(), fields.end(),
                        [&](const StateField& field) { return field.name == list.first; });
  });
  return absl::InvalidArgumentError(absl::StrCat(
      "saved ", stray->first, " is unknown here: it was saved with another codec or compensator"));
}

absl::Status RestoreFields(const SavedState& saved, absl::Span<const StateField> fields) {
  absl::Status fits = CheckFields(saved, fields);
  if (!fits.ok()) return fits;
  for (const StateField& field : fields) {
    const auto found = saved.find(field.name);
    if (found == saved.end()) {
      field.values->assign(field.values->size(), 0.0f);
    } else {
      *field.values = found->second;
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::compress
