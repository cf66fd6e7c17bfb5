// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/message_slices.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <gtest/gtest.h>

#include "sluice/v1/parameter_shard.pb.h"

namespace sluice::protocol {
namespace {

v1::ExchangeRequest Parsed(grpc::ByteBuffer buffer) {
  v1::ExchangeRequest request;
  EXPECT_TRUE(
      (grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::ExchangeRequest>(&buffer, &request))
          .ok());
  return request;
}

// The lengths include those at which a length field needs another byte, and those at which bytes
// are no longer copied. The result must equal protobuf's own serialization.
TEST(MessageSlicesTest, IsTheMessageThatProtobufWouldHaveMade) {
  for (const size_t size : {1, 120, 127, 128, 1000, 1024, 1025, 16383, 16384, 300000}) {
    v1::ExchangeRequest wanted;
    wanted.set_step(77);
    wanted.set_bundle(3);
    const v1::ExchangeRequest head = wanted;
    const auto frames = std::make_shared<std::vector<std::string>>();
    for (size_t i = 0; i < 3; ++i) {
      frames->emplace_back(size + i, static_cast<char>('a' + i));
      wanted.add_contributions()->set_frame(frames->back());
    }
    MessageSlices message(head);
    for (const std::string& frame : *frames) {
      message.AppendMessageOfBytes(v1::ExchangeRequest::kContributionsFieldNumber,
                                   v1::Contribution::kFrameFieldNumber, frame, frames);
    }
    grpc::ByteBuffer bytes = message.Take();
    EXPECT_EQ(bytes.Length(), wanted.ByteSizeLong()) << size;
    EXPECT_EQ(Parsed(bytes).SerializeAsString(), wanted.SerializeAsString()) << size;
  }
}

TEST(MessageSlicesTest, FieldsOfBytes) {
  const auto result = std::make_shared<const std::string>(5000, 'r');
  v1::ExchangeReply head;
  head.set_version(8);
  MessageSlices message(head);
  message.AppendBytes(v1::ExchangeReply::kResultsFieldNumber, *result, result);
  message.AppendBytes(v1::ExchangeReply::kResultsFieldNumber, "small", nullptr);
  grpc::ByteBuffer bytes = message.Take();
  v1::ExchangeReply reply;
  ASSERT_TRUE(
      (grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::ExchangeReply>(&bytes, &reply)).ok());
  EXPECT_EQ(reply.version(), 8u);
  ASSERT_EQ(reply.results_size(), 2);
  EXPECT_EQ(reply.results(0), *result);
  EXPECT_EQ(reply.results(1), "small");
}

TEST(MessageSlicesTest, KeepsWhatItRefersToUntilTheLastCopyIsGone) {
  auto owner = std::make_shared<const std::string>(5000, 'x');
  const std::weak_ptr<const std::string> watched = owner;
  grpc::ByteBuffer copy;
  {
    MessageSlices message{v1::ExchangeReply()};
    message.AppendBytes(v1::ExchangeReply::kResultsFieldNumber, *owner, owner);
    owner.reset();
    grpc::ByteBuffer bytes = message.Take();
    copy = bytes;
  }
  EXPECT_FALSE(watched.expired());
  copy.Clear();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace sluice::protocol
