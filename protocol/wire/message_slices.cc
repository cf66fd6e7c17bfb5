// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/message_slices.h"

#include <google/protobuf/message_lite.h>

namespace sluice::protocol {
namespace {

// Up to this size, copying bytes costs less than a separate slice.
constexpr size_t kCopiedMax = 1024;
constexpr uint32_t kLengthDelimited = 2;  // The wire type of bytes, strings and messages.

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

size_t VarintSize(uint64_t value) {
  size_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

void AppendTag(uint32_t field, std::string* out) {
  AppendVarint(uint64_t{field} << 3 | kLengthDelimited, out);
}

void LetGo(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

}  // namespace

MessageSlices::MessageSlices(const google::protobuf::MessageLite& head)
    : copied_(head.SerializeAsString()) {}

void MessageSlices::AppendBytes(uint32_t field, absl::string_view bytes,
                                const std::shared_ptr<const void>& owner) {
  AppendTag(field, &copied_);
  AppendVarint(bytes.size(), &copied_);
  AppendPayload(bytes, owner);
}

void MessageSlices::AppendMessageOfBytes(uint32_t field, uint32_t inner, absl::string_view bytes,
                                         const std::shared_ptr<const void>& owner) {
  AppendTag(field, &copied_);
  AppendVarint(VarintSize(uint64_t{inner} << 3) + VarintSize(bytes.size()) + bytes.size(),
               &copied_);
  AppendBytes(inner, bytes, owner);
}

void MessageSlices::AppendPayload(absl::string_view bytes,
                                  const std::shared_ptr<const void>& owner) {
  if (bytes.size() <= kCopiedMax) {
    copied_.append(bytes.data(), bytes.size());
    return;
  }
  CutHere();
  // The cast is safe because gRPC only reads the slice.
  slices_.emplace_back(const_cast<char*>(bytes.data()), bytes.size(), &LetGo,
                       new std::shared_ptr<const void>(owner));
}

void MessageSlices::CutHere() {
  if (copied_.empty()) return;
  slices_.emplace_back(copied_);
  copied_.clear();
}

grpc::ByteBuffer MessageSlices::Take() {
  CutHere();
  return grpc::ByteBuffer(slices_.data(), slices_.size());
}

}  // namespace sluice::protocol
