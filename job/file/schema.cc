// SPDX-License-Identifier: Apache-2.0
#include "job/file/schema.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/nearest_name.h"
#include "base/release.h"
#include "job/file/presets.h"
#include "job/file/quantity_text.h"
#include "job/job_spec.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldOptions;

// Returns "; did you mean 'sgd'?", or an empty string.
std::string Hint(absl::string_view word, absl::Span<const absl::string_view> known) {
  const absl::string_view nearest = NearestName(word, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
}

// Returns the names of the enumeration that a field's option names_of gives.
std::vector<absl::string_view> NamesOfEnum(absl::string_view enumeration) {
  struct Names {
    absl::string_view enumeration;
    std::vector<absl::string_view> (*all)();
  };
  constexpr Names kNames[] = {{"Mode", &AllNames<Mode>},
                              {"ElementType", &AllNames<compress::ElementType>},
                              {"Membership", &AllNames<Membership>},
                              {"UpdateLocation", &AllNames<UpdateLocation>},
                              {"OuterOptimizer", &AllNames<OuterOptimizer>},
                              {"PolicyKind", &AllNames<PolicyKind>},
                              {"GuardPolicy", &AllNames<GuardPolicy>},
                              {"MergeMethod", &AllNames<MergeMethod>},
                              {"MergeOver", &AllNames<MergeOver>},
                              {"MergeWeights", &AllNames<MergeWeights>},
                              {"Precision", &AllNames<Precision>},
                              {"Preset", &PresetNames},
                              {"EncodeLocation", &AllNames<EncodeLocation>},
                              {"DataFormat", &AllNames<DataFormat>},
                              {"CheckpointStore", &AllNames<protocol::CheckpointStore>}};
  for (const Names& names : kNames) {
    if (names.enumeration == enumeration) return names.all();
  }
  Check(false, "the schema names only enumerations of the list above");
  return {};
}

std::string FormatLimit(const FieldDescriptor& field, double limit) {
  switch (field.options().GetExtension(v1::unit)) {
    case v1::UNIT_BYTES:
      return FormatWholeBytes(static_cast<uint64_t>(limit));
    case v1::UNIT_SECONDS:
      return FormatSeconds(limit);
    default:
      return limit == std::floor(limit) && std::fabs(limit) < 1e15
                 ? absl::StrCat(static_cast<int64_t>(limit))
                 : FormatReal(limit);
  }
}

// Returns a limit as FormatLimit does, but "10^12" for large powers of ten.
std::string FormatRoundLimit(const FieldDescriptor& field, double limit) {
  std::string text = FormatLimit(field, limit);
  constexpr size_t kLong = 7;
  const bool is_power =
      text.size() >= kLong && text[0] == '1' && text.find_first_not_of('0', 1) == std::string::npos;
  return is_power ? absl::StrCat("10^", text.size() - 1) : text;
}

}  // namespace

KeyType TypeOf(const FieldDescriptor& field) {
  switch (field.options().GetExtension(v1::unit)) {
    case v1::UNIT_BYTES:
      return KeyType::kBytes;
    case v1::UNIT_SECONDS:
      return KeyType::kSeconds;
    case v1::UNIT_CODEC_SPEC:
      return KeyType::kCodec;
    default:
      break;
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return KeyType::kSection;
    case FieldDescriptor::CPPTYPE_BOOL:
      return KeyType::kBoolean;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return KeyType::kNumber;
    case FieldDescriptor::CPPTYPE_STRING:
      return KeyType::kText;
    default:
      return KeyType::kWhole;
  }
}

std::string JoinPath(absl::string_view path, absl::string_view key) {
  return path.empty() ? std::string(key) : absl::StrCat(path, ".", key);
}

std::string SectionName(absl::string_view path) {
  return path.empty() ? "the job" : std::string(path);
}

const FieldDescriptor* FindKey(const Descriptor& section, absl::string_view key) {
  const FieldDescriptor* const found = section.FindFieldByName(std::string(key));
  if (found != nullptr || key.empty()) return found;
  for (int i = 0; i < section.field_count(); ++i) {
    if (section.field(i)->options().GetExtension(v1::old_name) == key) return section.field(i);
  }
  return nullptr;
}

std::string OldNameWarning(const FieldDescriptor& field, absl::string_view path,
                           absl::string_view key) {
  if (key == field.name()) return "";
  return absl::StrCat("'", JoinPath(path, key), "' is now called '", JoinPath(path, field.name()),
                      "'; release ", kOldNamesRemovedIn, " no longer reads the old name");
}

std::string UnknownKey(const Descriptor& section, absl::string_view path, absl::string_view key) {
  std::vector<absl::string_view> known;
  known.reserve(static_cast<size_t>(section.field_count()));
  for (int i = 0; i < section.field_count(); ++i) known.push_back(section.field(i)->name());
  const std::string hint = Hint(key, known);
  return absl::StrCat(
      "unknown key ", ShowText(key), " in ", SectionName(path), hint,
      hint.empty() ? "; known keys: " : " known keys: ", absl::StrJoin(known, ", "));
}

std::string NotYet(const FieldDescriptor& field, absl::string_view path) {
  return absl::StrCat(path, ": not yet: ", field.options().GetExtension(v1::not_yet));
}

std::string SectionKind(const google::protobuf::Message& section) {
  const FieldDescriptor* const first = section.GetDescriptor()->field(0);
  const bool is_word =
      first->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !first->is_repeated();
  return is_word ? section.GetReflection()->GetString(section, first) : "";
}

bool AcceptsKey(const FieldDescriptor& field, absl::string_view kind) {
  const FieldOptions& options = field.options();
  const int kinds = options.ExtensionSize(v1::only_for);
  for (int i = 0; i < kinds; ++i) {
    if (options.GetExtension(v1::only_for, i) == kind) return true;
  }
  return kinds == 0;
}

std::vector<absl::string_view> KnownWords(const FieldDescriptor& field) {
  const FieldOptions& options = field.options();
  if (options.HasExtension(v1::names_of)) return NamesOfEnum(options.GetExtension(v1::names_of));
  const auto& known = options.GetRepeatedExtension(v1::known);
  return {known.begin(), known.end()};
}

std::string WordProblem(const FieldDescriptor& field, absl::string_view word) {
  const std::vector<absl::string_view> known = KnownWords(field);
  if (known.empty() || std::find(known.begin(), known.end(), word) != known.end()) return "";
  const std::string hint = Hint(word, known);
  return absl::StrCat("unknown ", field.name(), " ", ShowText(word), hint,
                      hint.empty() ? "; known: " : " known: ", absl::StrJoin(known, ", "));
}

std::string RangeText(const FieldDescriptor& field) {
  const FieldOptions& options = field.options();
  const bool has_least = options.HasExtension(v1::at_least);
  const bool has_most = options.HasExtension(v1::at_most);
  std::vector<std::string> limits;
  if (options.HasExtension(v1::above)) {
    limits.push_back(
        absl::StrCat("above ", FormatRoundLimit(field, options.GetExtension(v1::above))));
  }
  if (has_least) {
    limits.push_back(absl::StrCat(has_most ? "" : "at least ",
                                  FormatRoundLimit(field, options.GetExtension(v1::at_least))));
  }
  if (has_most) {
    limits.push_back(absl::StrCat(has_least ? "" : "at most ",
                                  FormatRoundLimit(field, options.GetExtension(v1::at_most))));
  }
  if (options.HasExtension(v1::below)) {
    limits.push_back(
        absl::StrCat("below ", FormatRoundLimit(field, options.GetExtension(v1::below))));
  }
  return absl::StrJoin(limits, has_least && has_most ? " to " : " and ");
}

std::string RangeProblem(const FieldDescriptor& field, double value) {
  const FieldOptions& options = field.options();
  const bool holds =
      (!options.HasExtension(v1::above) || value > options.GetExtension(v1::above)) &&
      (!options.HasExtension(v1::at_least) || value >= options.GetExtension(v1::at_least)) &&
      (!options.HasExtension(v1::at_most) || value <= options.GetExtension(v1::at_most)) &&
      (!options.HasExtension(v1::below) || value < options.GetExtension(v1::below));
  if (holds) return "";
  return absl::StrCat("must be ", RangeText(field), ", found ", FormatLimit(field, value));
}

std::string ShowText(absl::string_view text) {
  constexpr size_t kShown = 60;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kShown)),
                      text.size() > kShown ? "..." : "", "'");
}

}  // namespace sluice::job
