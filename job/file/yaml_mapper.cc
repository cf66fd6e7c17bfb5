// SPDX-License-Identifier: Apache-2.0
#include "job/file/yaml_mapper.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "compress/codec_spec.h"
#include "job/file/quantity_text.h"
#include "job/file/schema.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Describe(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return ShowText(node.Scalar());
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a section with keys";
    default:
      return "nothing";
  }
}

// Returns true for nodes in quotes or with an explicit tag. Such nodes are text, even if they look
// like numbers.
bool IsQuoted(const YAML::Node& node) { return node.Tag() != "?" && !node.Tag().empty(); }

std::string SetWhole(const FieldDescriptor& field, uint64_t value, Message* section) {
  const std::string problem = RangeProblem(field, static_cast<double>(value));
  if (!problem.empty()) return problem;
  const Reflection& reflection = *section->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    reflection.SetUInt64(section, &field, value);
    return "";
  }
  if (value > 0xFFFFFFFFu) return absl::StrCat("must be at most 4294967295, found ", value);
  const auto narrow = static_cast<uint32_t>(value);
  if (field.is_repeated()) {
    reflection.AddUInt32(section, &field, narrow);
  } else {
    reflection.SetUInt32(section, &field, narrow);
  }
  return "";
}

}  // namespace

void YamlMapper::MapSection(const YAML::Node& node, const std::string& path, Message* section) {
  if (!node.IsMap()) {
    return Fail(node, path,
                absl::StrCat(path.empty() ? "a job " : "", "must be a section with keys, found ",
                             Describe(node)));
  }
  // The place of each given key, by the key's current name.
  std::map<std::string, std::string> given;
  for (const auto& entry : node) {
    if (problems_->full()) return;
    const std::string where = source_->At(entry.first.Mark());
    if (!entry.first.IsScalar()) {
      problems_->Add(where, absl::StrCat("a key in ", SectionName(path), " must be a word, found ",
                                         Describe(entry.first)));
      continue;
    }
    const std::string& key = entry.first.Scalar();
    const FieldDescriptor* const field = FindKey(*section->GetDescriptor(), key);
    if (field == nullptr) {
      problems_->Add(where, UnknownKey(*section->GetDescriptor(), path, key));
      continue;
    }
    const auto [first, is_new] = given.emplace(field->name(), where);
    if (!is_new) {
      problems_->Add(where, absl::StrCat("key '", field->name(), "' is given twice in ",
                                         SectionName(path), "; first at ", first->second));
      continue;
    }
    const std::string warning = OldNameWarning(*field, path, key);
    if (!warning.empty()) problems_->Warn(where, warning);
    const std::string field_path = JoinPath(path, field->name());
    places_->Set(field_path, where);
    MapKey(entry.second, field_path, *field, section);
  }
}

void YamlMapper::MapKey(const YAML::Node& value, const std::string& path,
                        const FieldDescriptor& field, Message* section) {
  if (field.options().HasExtension(v1::not_yet)) {
    problems_->Add(places_->Find(path), NotYet(field, path));
  } else if (value.IsNull()) {
    Fail(value, path, "has no value; give one or remove the key");
  } else if (field.is_repeated()) {
    MapList(value, path, field, section);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    section->GetReflection()->ClearField(section, &field);
    MapSection(value, path, section->GetReflection()->MutableMessage(section, &field));
  } else if (field.options().GetExtension(v1::unit) == v1::UNIT_CODEC_SPEC) {
    MapCodec(value, path, field, section);
  } else {
    MapScalar(value, path, field, section);
  }
}

void YamlMapper::MapList(const YAML::Node& value, const std::string& path,
                         const FieldDescriptor& field, Message* section) {
  if (!value.IsSequence()) {
    return Fail(value, path, absl::StrCat("must be a list, found ", Describe(value)));
  }
  if (value.size() > kMaxListEntries) {
    return Fail(value, path,
                absl::StrCat("has ", value.size(), " entries; the limit is ", kMaxListEntries));
  }
  const bool of_sections = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (value.size() == 0 && !of_sections) return Fail(value, path, "is an empty list");
  section->GetReflection()->ClearField(section, &field);
  size_t index = 0;
  for (const YAML::Node& entry : value) {
    if (problems_->full()) return;
    const std::string entry_path = absl::StrCat(path, "[", index++, "]");
    places_->Set(entry_path, source_->At(entry.Mark()));
    if (of_sections) {
      MapSection(entry, entry_path, section->GetReflection()->AddMessage(section, &field));
    } else if (field.options().GetExtension(v1::unit) == v1::UNIT_CODEC_SPEC) {
      MapCodec(entry, entry_path, field, section);
    } else {
      MapScalar(entry, entry_path, field, section);
    }
  }
}

void YamlMapper::MapScalar(const YAML::Node& value, const std::string& path,
                           const FieldDescriptor& field, Message* section) {
  const std::string problem = value.IsScalar()
                                  ? SetScalar(value, field, section)
                                  : absl::StrCat("must be a single value, found ", Describe(value));
  if (!problem.empty()) Fail(value, path, problem);
}

std::string YamlMapper::SetScalar(const YAML::Node& value, const FieldDescriptor& field,
                                  Message* section) {
  const std::string& text = value.Scalar();
  const auto expected = [&](absl::string_view what) {
    return absl::StrCat("must be ", what, ", found ", IsQuoted(value) ? "the text " : "",
                        ShowText(text));
  };
  const Reflection& reflection = *section->GetReflection();
  const v1::Unit unit = field.options().GetExtension(v1::unit);
  const bool may_be_quoted = unit != v1::UNIT_NONE;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      // A message with other bytes could not be parsed.
      if (ValidText(text, text.size()) != text) return expected("text in UTF-8");
      const std::string problem = WordProblem(field, text);
      if (!problem.empty()) return problem;
      if (field.is_repeated()) {
        reflection.AddString(section, &field, text);
      } else {
        reflection.SetString(section, &field, text);
      }
      return "";
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (IsQuoted(value) || (text != "true" && text != "false")) return expected("true or false");
      reflection.SetBool(section, &field, text == "true");
      return "";
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const absl::StatusOr<double> number =
          unit == v1::UNIT_SECONDS ? ParseSeconds(text) : ParseReal(text);
      if (!number.ok()) return expected(number.status().message());
      if (IsQuoted(value) && !may_be_quoted) return expected("a number");
      const std::string problem = RangeProblem(field, *number);
      if (!problem.empty()) return problem;
      if (field.is_repeated()) {
        reflection.AddDouble(section, &field, *number);
      } else {
        reflection.SetDouble(section, &field, *number);
      }
      return "";
    }
    default: {
      const absl::StatusOr<uint64_t> number =
          unit == v1::UNIT_BYTES ? ParseBytes(text) : ParseWhole(text);
      if (!number.ok()) return expected(number.status().message());
      if (IsQuoted(value) && !may_be_quoted) return expected("a whole number");
      return SetWhole(field, *number, section);
    }
  }
}

void YamlMapper::MapCodec(const YAML::Node& value, const std::string& path,
                          const FieldDescriptor& field, Message* section) {
  if (!value.IsScalar()) {
    return Fail(
        value, path,
        absl::StrCat("must be a codec on one line, such as topk:1%+int4, found ", Describe(value)));
  }
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(value.Scalar());
  if (!spec.ok()) return Fail(value, path, spec.status().message());
  if (field.is_repeated()) {
    section->GetReflection()->AddString(section, &field, compress::ToString(*spec));
  } else {
    section->GetReflection()->SetString(section, &field, compress::ToString(*spec));
  }
}

void YamlMapper::Fail(const YAML::Node& node, const std::string& path, absl::string_view what) {
  problems_->Add(source_->At(node.Mark()),
                 path.empty() ? std::string(what) : absl::StrCat(path, ": ", what));
}

}  // namespace sluice::job
