// SPDX-License-Identifier: Apache-2.0
// YamlMapper: maps YAML nodes onto the messages of the job's schema. The mapper is strict: it
// checks every key, type, word, unit and limit, and reports each violation as a problem.
#pragma once

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/strings/string_view.h"
#include "job/file/problems.h"
#include "job/file/yaml_source.h"

namespace sluice::job {

class YamlMapper {
 public:
  // All arguments must outlive the mapper. The mapper records the place of every given key in
  // `places`.
  YamlMapper(const YamlSource* source, Places* places, Problems* problems)
      : source_(source), places_(places), problems_(problems) {}

  // Maps the keys of `node`. Other keys of `*section` stay unchanged.
  void MapSection(const YAML::Node& node, const std::string& path,
                  google::protobuf::Message* section);

  // Maps one key. The value replaces an existing list or section.
  void MapKey(const YAML::Node& value, const std::string& path,
              const google::protobuf::FieldDescriptor& field, google::protobuf::Message* section);

 private:
  void MapList(const YAML::Node& value, const std::string& path,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message* section);
  void MapScalar(const YAML::Node& value, const std::string& path,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message* section);
  // Sets the field, or appends to a repeated field. Returns the expected form of the value, or an
  // empty string if the value is valid.
  std::string SetScalar(const YAML::Node& value, const google::protobuf::FieldDescriptor& field,
                        google::protobuf::Message* section);
  void MapCodec(const YAML::Node& value, const std::string& path,
                const google::protobuf::FieldDescriptor& field, google::protobuf::Message* section);
  void Fail(const YAML::Node& node, const std::string& path, absl::string_view what);

  const YamlSource* const source_;
  Places* const places_;
  Problems* const problems_;
};

}  // namespace sluice::job
