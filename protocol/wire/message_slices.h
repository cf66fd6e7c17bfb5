// SPDX-License-Identifier: Apache-2.0
// MessageSlices: a serialized protobuf message that refers to its large byte fields instead of
// copying them. A receiver cannot see the difference, because fields may come in any order.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace google::protobuf {
class MessageLite;
}

namespace sluice::protocol {

class MessageSlices {
 public:
  // The message begins with the fields that are set in `head`.
  explicit MessageSlices(const google::protobuf::MessageLite& head);

  // Appends field number `field`, of type bytes or string. Long `bytes` are not copied: `owner`
  // keeps them alive while any copy of the buffer from Take() exists. Short `bytes` are copied.
  void AppendBytes(uint32_t field, absl::string_view bytes,
                   const std::shared_ptr<const void>& owner);
  // Appends field number `field`: a message in which only the bytes field `inner` is set.
  void AppendMessageOfBytes(uint32_t field, uint32_t inner, absl::string_view bytes,
                            const std::shared_ptr<const void>& owner);
  // Returns the whole message. May be called only once.
  grpc::ByteBuffer Take();

 private:
  void AppendPayload(absl::string_view bytes, const std::shared_ptr<const void>& owner);
  void CutHere();

  std::string copied_;  // Bytes appended since the last slice.
  std::vector<grpc::Slice> slices_;
};

}  // namespace sluice::protocol
