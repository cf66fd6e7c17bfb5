// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/tensor_table_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/protocol/wire/unset_fields.h"
#include "tests/protocol/wire/wire_samples.h"

namespace sluice::protocol {
namespace {

TEST(TensorTableMessageTest, TablesTravel) {
  v1::TensorTable message;
  TableToProto(SampleTable(), &message);
  EXPECT_THAT(UnsetFields(message), ::testing::IsEmpty());
  const absl::StatusOr<TensorTable> back = TableFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, SampleTable());
}

TEST(TensorTableMessageTest, ATableOfTooManyBytesIsRefusedBeforeItIsCopied) {
  v1::TensorTable message;
  for (size_t tensor = 0; tensor < kMaxTensors; ++tensor) {
    v1::TensorInfo* info = message.add_tensors();
    info->set_name(std::string(300, 'n'));
    info->add_shape(1);
    info->set_dtype(v1::DTYPE_FLOAT32);
  }
  const absl::Status refused = TableFromProto(message).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("at most 16777216"));
  for (v1::TensorInfo& info : *message.mutable_tensors()) info.set_name("short");
  EXPECT_TRUE(TableFromProto(message).ok());
}

}  // namespace
}  // namespace sluice::protocol
