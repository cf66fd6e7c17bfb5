// YamlMapper: YAML nodes onto the messages of the job's schema, strictly: every key, type, word,
// unit and limit is checked, and what is wrong is added to the problems.
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
  static constexpr size_t kMaxListEntries = 1000;

  // All outlive the mapper. `places` gets every key that was given.
  YamlMapper(const YamlSource* source, Places* places, Problems* problems)
      : source_(source), places_(places), problems_(problems) {}

  // Keys that `node` does not name stay as they are in `*section`.
  void MapSection(const YAML::Node& node, const std::string& path,
                  google::protobuf::Message* section);

  // One key. A list or section that is there already is replaced.
  void MapKey(const YAML::Node& value, const std::string& path,
              const google::protobuf::FieldDescriptor& field, google::protobuf::Message* section);

 private:
  void MapList(const YAML::Node& value, const std::string& path,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message* section);
  void MapScalar(const YAML::Node& value, const std::string& path,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message* section);
  // Sets the field, or appends to it if it is repeated. Returns what was expected instead; empty if
  // it fits.
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
