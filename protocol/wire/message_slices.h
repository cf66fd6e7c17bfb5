// MessageSlices: a serialized protobuf message whose large fields of bytes are not copied into it
// but referred to. What receives it cannot tell: fields may come in any order.
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
  // Begins with the fields that are set in `head`.
  explicit MessageSlices(const google::protobuf::MessageLite& head);

  // Field number `field`, of type bytes or string. `owner` keeps `bytes` alive, which are not
  // copied unless there are few, for as long as any copy of what Take returns needs them.
  void AppendBytes(uint32_t field, absl::string_view bytes,
                   const std::shared_ptr<const void>& owner);
  // Field number `field`, a message in which nothing but its field `inner`, of bytes, is set.
  void AppendMessageOfBytes(uint32_t field, uint32_t inner, absl::string_view bytes,
                            const std::shared_ptr<const void>& owner);
  // All of it. Once.
  grpc::ByteBuffer Take();

 private:
  void AppendPayload(absl::string_view bytes, const std::shared_ptr<const void>& owner);
  void CutHere();

  std::string copied_;  // What was appended since the last slice.
  std::vector<grpc::Slice> slices_;
};

}  // namespace sluice::protocol
