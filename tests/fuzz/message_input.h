// SPDX-License-Identifier: Apache-2.0
// Reads protobuf messages from a fuzzer's bytes: parsed from bytes, built field by field, or
// changed from a message that an honest client would send.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include "tests/fuzz/fuzz_input.h"

namespace sluice {

// Often returns a number at which code may change its behavior.
inline uint64_t NextNumber(FuzzInput* input) {
  static constexpr uint64_t kEdges[] = {0,
                                        1,
                                        2,
                                        3,
                                        7,
                                        77,
                                        100,
                                        101,
                                        255,
                                        65536,
                                        (uint64_t{1} << 31) - 1,
                                        uint64_t{1} << 31,
                                        (uint64_t{1} << 32) - 1,
                                        uint64_t{1} << 32,
                                        uint64_t{1} << 62,
                                        uint64_t{1} << 63,
                                        std::numeric_limits<uint64_t>::max()};
  const uint8_t kind = input->Byte();
  if (kind < 160) return kEdges[kind % std::size(kEdges)];
  if (kind < 224) return input->Byte();
  uint64_t number = 0;
  for (int i = 0; i < 8; ++i) number = number << 8 | input->Byte();
  return number;
}

inline double NextReal(FuzzInput* input) {
  static constexpr double kEdges[] = {0,
                                      -1,
                                      1,
                                      0.5,
                                      1e-320,
                                      1e30,
                                      1e308,
                                      -1e308,
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN()};
  return kEdges[input->Byte() % std::size(kEdges)];
}

inline std::string NextText(FuzzInput* input) {
  static const auto* const kTexts =
      new std::vector<std::string>{"",
                                   "demo",
                                   "worker-0-term-0.state",
                                   "worker-1-term-0.state",
                                   "shard-0-term-0.state",
                                   "parameters.pt",
                                   "../../etc/passwd",
                                   "manifest.json",
                                   "topk:10%",
                                   "none",
                                   "\x1b[2Jline\nline",
                                   std::string(300, 'a'),
                                   std::string(4095, 'a') + "\xC3\xA9",
                                   std::string(70000, 'b') + "\xF0\x9F\x98\x80"};
  const uint8_t kind = input->Byte();
  if (kind < 128) return (*kTexts)[kind % kTexts->size()];
  const absl::Span<const std::byte> bytes = input->Bytes(kind - 128);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void ChangeMessage(FuzzInput* input, google::protobuf::Message* message, int depth = 0);

inline void ChangeField(FuzzInput* input, const google::protobuf::FieldDescriptor& field,
                        google::protobuf::Message* message, int depth) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& to = *message->GetReflection();
  const auto set = [&](auto setter, auto adder, auto value) {
    if (field.is_repeated()) {
      (to.*adder)(message, &field, value);
    } else {
      (to.*setter)(message, &field, value);
    }
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case Field::CPPTYPE_BOOL:
      return set(&R::SetBool, &R::AddBool, (input->Byte() & 1) != 0);
    case Field::CPPTYPE_ENUM:
      return set(&R::SetEnumValue, &R::AddEnumValue, static_cast<int>(input->Byte()));
    case Field::CPPTYPE_INT32:
      return set(&R::SetInt32, &R::AddInt32, static_cast<int32_t>(NextNumber(input)));
    case Field::CPPTYPE_INT64:
      return set(&R::SetInt64, &R::AddInt64, static_cast<int64_t>(NextNumber(input)));
    case Field::CPPTYPE_UINT32:
      return set(&R::SetUInt32, &R::AddUInt32, static_cast<uint32_t>(NextNumber(input)));
    case Field::CPPTYPE_UINT64:
      return set(&R::SetUInt64, &R::AddUInt64, NextNumber(input));
    case Field::CPPTYPE_FLOAT:
      return set(&R::SetFloat, &R::AddFloat, static_cast<float>(NextReal(input)));
    case Field::CPPTYPE_DOUBLE:
      return set(&R::SetDouble, &R::AddDouble, NextReal(input));
    case Field::CPPTYPE_STRING:
      return set(&R::SetString, &R::AddString, NextText(input));
    case Field::CPPTYPE_MESSAGE:
      if (depth > 4) return;
      if (!field.is_repeated()) {
        return ChangeMessage(input, to.MutableMessage(message, &field), depth + 1);
      }
      const int count = to.FieldSize(*message, &field);
      const int at = input->Byte() % (count + 1);
      ChangeMessage(input,
                    at < count ? to.MutableRepeatedMessage(message, &field, at)
                               : to.AddMessage(message, &field),
                    depth + 1);
      return;
  }
}

// Changes some fields of the message. A byte of 0 ends the changes of a message, and a byte of 128
// or more removes the field.
inline void ChangeMessage(FuzzInput* input, google::protobuf::Message* message, int depth) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  if (type.field_count() == 0) return;
  for (uint8_t what = input->Byte(); what != 0; what = input->Byte()) {
    const google::protobuf::FieldDescriptor& field =
        *type.field(((what & 0x7F) - 1 + type.field_count()) % type.field_count());
    if (what >= 128) {
      message->GetReflection()->ClearField(message, &field);
    } else {
      ChangeField(input, field, message, depth);
    }
  }
}

// Returns the next message as gRPC would deliver it, or nullopt if gRPC would refuse its bytes.
// `honest` is the message that an honest client would send.
template <typename M>
std::optional<M> NextMessage(FuzzInput* input, M honest) {
  M delivered;
  switch (input->Byte() % 4) {
    case 0:
      return honest;
    case 1:
      ChangeMessage(input, &honest);
      break;
    case 2:
      honest.Clear();
      ChangeMessage(input, &honest);
      break;
    default: {
      const absl::Span<const std::byte> bytes = input->Bytes(input->Short());
      const bool parsed = delivered.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
      return parsed ? std::optional<M>(std::move(delivered)) : std::nullopt;
    }
  }
  if (!delivered.ParseFromString(honest.SerializeAsString())) return std::nullopt;
  return delivered;
}

// Returns the message as its receiver would see it. Every text in a message must be UTF-8, or its
// receiver cannot parse it.
template <typename M>
M Received(const M& sent) {
  M received;
  Check(received.ParseFromString(sent.SerializeAsString()), "the receiver can parse a message");
  return received;
}

}  // namespace sluice
