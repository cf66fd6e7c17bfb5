// SPDX-License-Identifier: Apache-2.0
#include "job/file/explanation.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "job/file/schema.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldOptions;

// A key of the schema. The whole job has a section but no field.
struct Place {
  const FieldDescriptor* field = nullptr;
  const Descriptor* section = nullptr;  // Null for a key without keys of its own.
  std::string path;                     // With current names.
};

absl::StatusOr<Place> FindPlace(absl::string_view path) {
  Place place{nullptr, v1::JobSpec::descriptor(), ""};
  if (path.empty()) return place;
  for (const absl::string_view key : absl::StrSplit(path, '.')) {
    if (place.section == nullptr) {
      return absl::NotFoundError(absl::StrCat("'", place.path, "' has no keys of its own"));
    }
    const FieldDescriptor* const field = FindKey(*place.section, key);
    if (field == nullptr) {
      return absl::NotFoundError(UnknownKey(*place.section, place.path, key));
    }
    place = {field, field->message_type(), JoinPath(place.path, field->name())};
  }
  return place;
}

std::string DefaultText(const FieldOptions& options) {
  if (options.HasExtension(v1::default_note)) return options.GetExtension(v1::default_note);
  if (options.GetExtension(v1::needed)) return "required";
  const std::string& value = options.GetExtension(v1::default_value);
  double number = 0;
  return value.empty() || absl::SimpleAtod(value, &number) ? value : absl::StrCat("`", value, "`");
}

std::string Limits(const FieldDescriptor& field) {
  const std::string bounds = RangeText(field);
  const std::string note = field.options().GetExtension(v1::range_note);
  return absl::StrCat(bounds.empty() || !field.is_repeated() ? "" : "each ", bounds,
                      bounds.empty() || note.empty() ? "" : "; ", note);
}

KeyExplanation Explain(const Place& place) {
  KeyExplanation key;
  key.path = place.path;
  if (place.field == nullptr) return key;
  key.type = TypeOf(*place.field);
  const FieldOptions& options = place.field->options();
  key.meaning = options.GetExtension(v1::help);
  key.is_list = place.field->is_repeated();
  for (const absl::string_view word : KnownWords(*place.field)) key.words.emplace_back(word);
  for (int i = 0; i < options.ExtensionSize(v1::only_for); ++i) {
    key.taken_by.push_back(options.GetExtension(v1::only_for, i));
  }
  key.default_text = DefaultText(options);
  key.limits = Limits(*place.field);
  return key;
}

}  // namespace

absl::StatusOr<KeyExplanation> ExplainKey(absl::string_view path) {
  absl::StatusOr<Place> place = FindPlace(path);
  if (!place.ok()) return place.status();
  return Explain(*place);
}

absl::StatusOr<std::vector<KeyExplanation>> ExplainKeysOf(absl::string_view path) {
  const absl::StatusOr<Place> place = FindPlace(path);
  if (!place.ok()) return place.status();
  if (place->section == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("'", place->path, "' has no keys of its own"));
  }
  std::vector<KeyExplanation> keys;
  for (int i = 0; i < place->section->field_count(); ++i) {
    const FieldDescriptor& field = *place->section->field(i);
    keys.push_back(Explain({&field, field.message_type(), JoinPath(place->path, field.name())}));
  }
  return keys;
}

}  // namespace sluice::job
