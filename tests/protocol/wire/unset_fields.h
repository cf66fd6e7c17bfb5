// SPDX-License-Identifier: Apache-2.0
// Finds the message fields that a round-trip test does not set. If a .proto file gets a new field,
// the test fails until both conversions of the message handle the field.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <set>
#include <string>
#include <vector>

namespace sluice::protocol {

inline void AddUnsetFields(const std::vector<const google::protobuf::Message*>& messages,
                           const std::string& prefix, std::set<std::string>* unset) {
  const google::protobuf::Descriptor* const descriptor = messages.front()->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = descriptor->field(i);
    const bool is_message = field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
    bool is_set = false;
    std::vector<const google::protobuf::Message*> inner;
    for (const google::protobuf::Message* message : messages) {
      const google::protobuf::Reflection* const reflection = message->GetReflection();
      const int size = field->is_repeated() ? reflection->FieldSize(*message, field)
                                            : (reflection->HasField(*message, field) ? 1 : 0);
      is_set = is_set || size > 0;
      for (int at = 0; is_message && at < size; ++at) {
        inner.push_back(field->is_repeated() ? &reflection->GetRepeatedMessage(*message, field, at)
                                             : &reflection->GetMessage(*message, field));
      }
    }
    const std::string name = prefix + field->name();
    if (!is_set) unset->insert(name);
    if (!inner.empty()) AddUnsetFields(inner, name + ".", unset);
  }
}

// Returns the paths ("table.tensors.name") of the fields that none of the messages sets to a
// non-default value. All messages must have the same type.
inline std::set<std::string> UnsetFields(
    const std::vector<const google::protobuf::Message*>& messages) {
  std::set<std::string> unset;
  AddUnsetFields(messages, "", &unset);
  return unset;
}

inline std::set<std::string> UnsetFields(const google::protobuf::Message& message) {
  return UnsetFields(std::vector<const google::protobuf::Message*>{&message});
}

// protobuf refuses to read a message whose strings are not UTF-8.
template <typename Message>
bool CanBeRead(const Message& message) {
  return Message().ParseFromString(message.SerializeAsString());
}

}  // namespace sluice::protocol
