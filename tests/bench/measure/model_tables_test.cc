// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/model_tables.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

struct Known {
  const char* name;
  uint64_t elements;
  size_t tensors;
  const char* last;
};

class KnownModel : public ::testing::TestWithParam<Known> {};

TEST_P(KnownModel, HasItsParameters) {
  const absl::StatusOr<protocol::TensorTable> table = ModelTable(GetParam().name);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(protocol::ValidateTensorTable(*table).ok());
  EXPECT_EQ(protocol::TotalElements(*table), GetParam().elements);
  EXPECT_EQ(table->size(), GetParam().tensors);
  EXPECT_EQ(table->back().name, GetParam().last);
}

// The expected counts are those of torchvision and HuggingFace.
INSTANTIATE_TEST_SUITE_P(
    All, KnownModel,
    ::testing::Values(Known{"resnet50", 25'557'032, 161, "fc.bias"},
                      Known{"vgg16", 138'357'544, 32, "classifier.6.bias"},
                      Known{"bert-base", 109'482'240, 199, "pooler.dense.bias"},
                      Known{"gpt2", 124'439'808, 148, "transformer.ln_f.bias"}));

TEST(ModelTableTest, KnowsAllNames) {
  for (const absl::string_view name : ModelTableNames()) EXPECT_TRUE(ModelTable(name).ok()) << name;
}

TEST(ModelTableTest, UnknownNameGetsTheNearest) {
  const absl::Status status = ModelTable("resnet5").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("did you mean `resnet50`?"));
  EXPECT_THAT(ModelTable("zebra").status().message(), HasSubstr("known: resnet50, vgg16"));
}

TEST(ModelTableTest, ShrinksToAboutWhatIsAsked) {
  const protocol::TensorTable table = *ModelTable("resnet50");
  const protocol::TensorTable small = ShrinkTable(table, 500'000);
  EXPECT_TRUE(protocol::ValidateTensorTable(small).ok());
  EXPECT_EQ(small.size(), table.size());
  EXPECT_GT(protocol::TotalElements(small), 450'000u);
  EXPECT_LE(protocol::TotalElements(small), 500'000u);
  EXPECT_EQ(ShrinkTable(table, 0), table);
  EXPECT_EQ(ShrinkTable(table, 1 << 30), table);
}

}  // namespace
}  // namespace sluice::bench
