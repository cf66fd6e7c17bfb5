// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/model_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice::planning {
namespace {

using ::testing::HasSubstr;

TEST(ModelSize, CountsTrainedTensorsAndSmallOnes) {
  const protocol::TensorTable table = {{.name = "weight", .shape = {100, 20}, .strides = {}},
                                       {.name = "bias", .shape = {100}, .strides = {}},
                                       {.name = "mean",
                                        .shape = {5000},
                                        .strides = {},
                                        .dtype = protocol::DType::kFloat32,
                                        .role = protocol::TensorRole::kBuffer}};
  const ModelSize size = SizeOfTable("net", table, 1024);
  EXPECT_EQ(size.name, "net");
  EXPECT_EQ(size.elements, 2100);
  EXPECT_EQ(size.tensors, 2);
  EXPECT_EQ(size.small_elements, 100);
}

TEST(ModelSize, DividesParametersIntoTensorsOfAMillion) {
  const absl::StatusOr<ModelSize> size = SizeOfParameters(2.4e6);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->elements, 2.4e6);
  EXPECT_EQ(size->tensors, 2);
  EXPECT_EQ(size->small_elements, 0);
  EXPECT_EQ(SizeOfParameters(1)->tensors, 1);
}

TEST(ModelSize, RefusesImpossibleNumbers) {
  for (const double parameters : {0.0, -5.0, 2e12, std::nan("")}) {
    const absl::StatusOr<ModelSize> size = SizeOfParameters(parameters);
    ASSERT_FALSE(size.ok()) << parameters;
    EXPECT_THAT(std::string(size.status().message()), HasSubstr("give a number from 1 to 1e+12"));
  }
}

}  // namespace
}  // namespace sluice::planning
