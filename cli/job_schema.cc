// SPDX-License-Identifier: Apache-2.0
#include "cli/job_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cli/explain.h"
#include "compress/codec_table.h"
#include "job/file/own_program.h"
#include "job/file/quantity_text.h"
#include "job/file/schema.h"
#include "nlohmann/json.hpp"
#include "sluice/v1/job.pb.h"

namespace sluice::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldOptions;
using job::KeyType;
using Json = nlohmann::ordered_json;

// Returns the number without a fraction if it is whole, as a person would write it.
Json NumberJson(double value) {
  constexpr double kExact = 0x1.0p53;
  if (value == std::floor(value) && std::fabs(value) < kExact) return static_cast<int64_t>(value);
  return value;
}

std::string CodecPattern() {
  const auto append = [](std::string* out, const compress::CodecEntry& codec) {
    absl::StrAppend(out, codec.name);
  };
  return absl::StrCat("^(", absl::StrJoin(compress::Codecs(), "|", append), ")([:+/].*)?$");
}

// Adds the field's limits. JSON Schema applies them to numbers and not to texts such as "256KiB".
Json WithLimits(const FieldDescriptor& field, Json schema) {
  const FieldOptions& options = field.options();
  if (options.HasExtension(v1::at_least)) {
    schema["minimum"] = NumberJson(options.GetExtension(v1::at_least));
  } else if (options.HasExtension(v1::above)) {
    schema["exclusiveMinimum"] = NumberJson(options.GetExtension(v1::above));
  } else if (job::TypeOf(field) != KeyType::kNumber) {
    schema["minimum"] = 0;
  }
  if (options.HasExtension(v1::at_most)) {
    schema["maximum"] = NumberJson(options.GetExtension(v1::at_most));
  } else if (options.HasExtension(v1::below)) {
    schema["exclusiveMaximum"] = NumberJson(options.GetExtension(v1::below));
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    schema["maximum"] = std::numeric_limits<uint32_t>::max();
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    schema["maximum"] = std::numeric_limits<uint64_t>::max();
  }
  return schema;
}

Json SectionSchema(const Descriptor& section, const std::string& path);

// Returns the schema of the key's value, or of each entry if the key takes a list.
Json ValueSchema(const FieldDescriptor& field, const std::string& path) {
  switch (job::TypeOf(field)) {
    case KeyType::kSection:
      return SectionSchema(*field.message_type(), path);
    case KeyType::kBoolean:
      return {{"type", "boolean"}};
    case KeyType::kText: {
      const std::vector<absl::string_view> words = job::KnownWords(field);
      if (!words.empty()) return {{"type", "string"}, {"enum", words}};
      // The loader takes 2024 or true without quotes as a text, too.
      return {{"type", {"string", "number", "boolean"}}};
    }
    case KeyType::kCodec:
      return {{"type", "string"}, {"pattern", CodecPattern()}};
    case KeyType::kWhole:
      return WithLimits(field, {{"type", "integer"}});
    case KeyType::kNumber:
      return WithLimits(field, {{"type", "number"}});
    case KeyType::kBytes:
      return WithLimits(field, {{"type", {"integer", "string"}}, {"pattern", job::BytesPattern()}});
    case KeyType::kSeconds:
      return WithLimits(field,
                        {{"type", {"number", "string"}}, {"pattern", job::SecondsPattern()}});
  }
  return true;
}

// Returns the default that the schema gives as a value. Null stands for none: a key with
// `default_note`, or a list, whose default the description contains.
Json DefaultJson(const FieldDescriptor& field) {
  const FieldOptions& options = field.options();
  if (!options.HasExtension(v1::default_value) || field.is_repeated()) return nullptr;
  const std::string& text = options.GetExtension(v1::default_value);
  const KeyType type = job::TypeOf(field);
  double number = 0;
  if (type == KeyType::kBoolean) return text == "true";
  const bool is_text = type == KeyType::kText || type == KeyType::kCodec;
  if (is_text || !absl::SimpleAtod(text, &number)) return text;
  return NumberJson(number);
}

// Returns the key's meaning, with the parts of its default and limits that are no numbers.
std::string Description(const FieldDescriptor& field) {
  const FieldOptions& options = field.options();
  std::string text = PlainText(options.GetExtension(v1::help));
  std::string note = options.GetExtension(v1::default_note);
  if (note.empty() && field.is_repeated()) note = options.GetExtension(v1::default_value);
  // PlainText would take the brackets of a list for those of a link.
  if (!field.is_repeated()) note = PlainText(note);
  if (absl::StrContains(note, "required")) {
    note[0] = absl::ascii_toupper(static_cast<unsigned char>(note[0]));
    absl::StrAppend(&text, " ", note, ".");
  } else if (!note.empty()) {
    absl::StrAppend(&text, " Default: ", note, ".");
  }
  const std::string& limits = options.GetExtension(v1::range_note);
  if (!limits.empty()) absl::StrAppend(&text, " Range: ", PlainText(limits), ".");
  return text;
}

// Returns true for sections whose keys only replace those of the job's own section.
bool ReplacesKeys(absl::string_view path) { return absl::StartsWith(path, "baseline."); }

Json KeySchema(const FieldDescriptor& field, const std::string& path) {
  Json schema = {{"description", Description(field)}};
  if (field.options().HasExtension(v1::not_yet)) {
    schema["description"] = job::NotYet(field, path);
    schema["not"] = Json::object();
    return schema;
  }
  Json value = ValueSchema(field, path);
  if (field.is_repeated()) {
    value = {{"type", "array"}, {"items", std::move(value)}, {"maxItems", job::kMaxListEntries}};
    if (job::TypeOf(field) != KeyType::kSection) value["minItems"] = 1;
  }
  schema.update(value);
  const Json default_value = DefaultJson(field);
  if (!default_value.is_null() && !ReplacesKeys(path)) schema["default"] = default_value;
  return schema;
}

std::vector<std::string> KindsThatTake(const FieldDescriptor& field) {
  const auto& kinds = field.options().GetRepeatedExtension(v1::only_for);
  return {kinds.begin(), kinds.end()};
}

// Returns a schema that accepts sections of one of these kinds. The first key gives the kind.
Json KindIsOneOf(const Descriptor& section, const std::string& path,
                 const std::vector<std::string>& kinds) {
  const FieldDescriptor& first = *section.field(0);
  const std::string& usual = first.options().GetExtension(v1::default_value);
  Json schema = {{"properties", {{first.name(), {{"enum", kinds}}}}}};
  const bool may_omit =
      ReplacesKeys(path) || std::find(kinds.begin(), kinds.end(), usual) != kinds.end();
  if (!may_omit) schema["required"] = {first.name()};
  return schema;
}

Json SectionSchema(const Descriptor& section, const std::string& path) {
  Json properties = Json::object();
  Json required = Json::array();
  Json dependent = Json::object();
  Json rules = Json::array();
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const std::string field_path = job::JoinPath(path, field.name());
    const std::vector<std::string> kinds = KindsThatTake(field);
    std::vector<std::string> names = {field.name()};
    properties[field.name()] = KeySchema(field, field_path);
    if (const std::string& old = field.options().GetExtension(v1::old_name); !old.empty()) {
      names.push_back(old);
      properties[old] = properties[field.name()];
      properties[old]["description"] = absl::StrCat("Old name of ", field.name(), ".");
      properties[old]["deprecated"] = true;
      dependent[old] = {{"properties", {{field.name(), false}}}};
    }
    if (!kinds.empty()) {
      for (const std::string& name : names) {
        dependent[name].update(KindIsOneOf(section, field_path, kinds), true);
      }
    }
    const bool needed = field.options().GetExtension(v1::needed) && names.size() == 1 &&
                        !ReplacesKeys(field_path) && !job::IsTheProgramsOwn(field_path);
    if (needed && kinds.empty()) required.push_back(field.name());
    if (needed && !kinds.empty()) {
      rules.push_back({{"if", KindIsOneOf(section, field_path, kinds)},
                       {"then", {{"required", {field.name()}}}}});
    }
  }
  Json schema = {
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = std::move(required);
  if (!dependent.empty()) schema["dependentSchemas"] = std::move(dependent);
  if (!rules.empty()) schema["allOf"] = std::move(rules);
  return schema;
}

// Returns a schema that requires the keys that a job may omit only if its workers run a program of
// their own.
Json KeysOfSluicesOwnModels(const Descriptor& section, const std::string& path) {
  Json schema = Json::object();
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const FieldOptions& options = field.options();
    const std::string field_path = job::JoinPath(path, field.name());
    if (options.GetExtension(v1::needed) && job::IsTheProgramsOwn(field_path)) {
      schema["required"].push_back(field.name());
    }
    const bool is_given = field.message_type() == nullptr || field.is_repeated() ||
                          options.GetExtension(v1::if_given);
    if (is_given) continue;
    Json inner = KeysOfSluicesOwnModels(*field.message_type(), field_path);
    if (inner.empty()) continue;
    schema["required"].push_back(field.name());
    schema["properties"][field.name()] = std::move(inner);
  }
  return schema;
}

}  // namespace

std::string JobSchemaJson() {
  const Descriptor& job = *v1::JobSpec::descriptor();
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "Job file of Sluice"}};
  schema.update(SectionSchema(job, ""));
  Json& dependent = schema["dependentSchemas"];
  dependent["epochs"] = {{"properties", {{"steps", false}}}};
  // A job without both runs a program of its own.
  dependent["model"] = {{"required", {"data"}}};
  dependent["data"] = {{"required", {"model"}}};
  const Json is_sluices_own = {{"properties", {{"name", {{"not", {{"const", "custom"}}}}}}}};
  schema["if"] = {{"required", {"model"}}, {"properties", {{"model", is_sluices_own}}}};
  schema["then"] = KeysOfSluicesOwnModels(job, "");
  schema["then"]["anyOf"] = {{{"required", {"epochs"}}}, {{"required", {"steps"}}}};
  return schema.dump(2) + "\n";
}

}  // namespace sluice::cli
