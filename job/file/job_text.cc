// SPDX-License-Identifier: Apache-2.0
#include "job/file/job_text.h"

#include <google/protobuf/reflection.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/fnv1a.h"
#include "job/file/quantity_text.h"

namespace sluice::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Returns true if YAML reads the text without quotes as the same string.
bool IsPlain(absl::string_view text) {
  if (text.empty() || text.back() == ':' || text == "null" || text == "Null" || text == "NULL") {
    return false;
  }
  const auto first = static_cast<unsigned char>(text.front());
  if (!absl::ascii_isalnum(first) && first != '/') return false;
  for (const char c : text) {
    const bool common = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (!common && !absl::StrContains("_./:+%-", absl::string_view(&c, 1))) return false;
  }
  return true;
}

std::string QuoteYaml(absl::string_view text) {
  if (IsPlain(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FormatWhole(const FieldDescriptor& field, uint64_t value) {
  return field.options().GetExtension(v1::unit) == v1::UNIT_BYTES ? FormatWholeBytes(value)
                                                                  : absl::StrCat(value);
}

std::string ScalarText(const Message& section, const FieldDescriptor& field) {
  const Reflection& reflection = *section.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return QuoteYaml(reflection.GetString(section, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(section, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = reflection.GetDouble(section, &field);
      const bool seconds = field.options().GetExtension(v1::unit) == v1::UNIT_SECONDS;
      return seconds ? FormatSeconds(value) : FormatReal(value);
    }
    case FieldDescriptor::CPPTYPE_UINT64:
      return FormatWhole(field, reflection.GetUInt64(section, &field));
    default:
      return FormatWhole(field, reflection.GetUInt32(section, &field));
  }
}

std::string ListText(const Message& section, const FieldDescriptor& field) {
  const Reflection& reflection = *section.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return absl::StrJoin(
        reflection.GetRepeatedFieldRef<std::string>(section, &field), ", ",
        [](std::string* out, const std::string& text) { absl::StrAppend(out, QuoteYaml(text)); });
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    return absl::StrJoin(
        reflection.GetRepeatedFieldRef<double>(section, &field), ", ",
        [](std::string* out, double value) { absl::StrAppend(out, FormatReal(value)); });
  }
  return absl::StrJoin(reflection.GetRepeatedFieldRef<uint32_t>(section, &field), ", ");
}

// Appends the section. Every line begins with `indent`, except the first, which begins with `first`
// (for example "- " in a list).
void AppendSection(const Message& section, absl::string_view first, const std::string& indent,
                   std::string* text) {
  const Reflection& reflection = *section.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(section, &fields);  // These are the fields that are present, by number.
  std::string start(first);
  for (const FieldDescriptor* const field : fields) {
    absl::StrAppend(text, start, field->name(), ":");
    start = indent;
    if (!field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const Message& inner = reflection.GetMessage(section, field);
      absl::StrAppend(text, "\n");
      AppendSection(inner, indent + "  ", indent + "  ", text);
    } else if (!field->is_repeated()) {
      absl::StrAppend(text, " ", ScalarText(section, *field), "\n");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      absl::StrAppend(text, "\n");
      for (int i = 0; i < reflection.FieldSize(section, field); ++i) {
        AppendSection(reflection.GetRepeatedMessage(section, field, i), indent + "  - ",
                      indent + "    ", text);
      }
    } else {
      absl::StrAppend(text, " [", ListText(section, *field), "]\n");
    }
  }
}

}  // namespace

std::string JobText(const v1::JobSpec& job) {
  std::string text;
  AppendSection(job, "", "", &text);
  return text;
}

uint64_t HashJob(const v1::JobSpec& job) {
  v1::JobSpec agreed = job;
  agreed.clear_output();
  agreed.clear_log_interval();
  agreed.clear_device();
  agreed.clear_gpus_per_worker();
  agreed.clear_encode_location();
  agreed.clear_command();
  agreed.mutable_data()->clear_path();
  agreed.mutable_data()->clear_prefetch();
  if (agreed.has_checkpoint()) agreed.mutable_checkpoint()->clear_dir();
  agreed.mutable_server()->clear_port();
  agreed.mutable_server()->clear_http_port();
  Fnv1a hash;
  hash.Add(JobText(agreed));
  return hash.value();
}

}  // namespace sluice::job
