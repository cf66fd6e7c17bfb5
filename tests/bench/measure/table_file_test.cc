// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/table_file.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Refusal(absl::string_view text) {
  const absl::Status status = ParseTensorTable(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TableFile, ReadsNamesAndDimensions) {
  const absl::StatusOr<protocol::TensorTable> table =
      ParseTensorTable("# An MLP.\n\nfc1.weight 256 784\r\n\tfc1.bias\t256 # rows\nscale\n");
  ASSERT_TRUE(table.ok()) << table.status();
  const protocol::TensorTable wanted = {{"fc1.weight", {256, 784}, {}, protocol::DType::kFloat32},
                                        {"fc1.bias", {256}, {}, protocol::DType::kFloat32},
                                        {"scale", {}, {}, protocol::DType::kFloat32}};
  EXPECT_EQ(*table, wanted);
}

TEST(TableFile, RefusesWithLineAndWord) {
  EXPECT_THAT(Refusal("a 2\nb 3x4"), AllOf(HasSubstr("line 2"), HasSubstr("\"3x4\"")));
  EXPECT_THAT(Refusal("a 0"), AllOf(HasSubstr("line 1"), HasSubstr("\"0\"")));
  EXPECT_THAT(Refusal("a -1"), HasSubstr("\"-1\""));
  EXPECT_THAT(Refusal("a 99999999999999999999"), HasSubstr("not a dimension"));
  EXPECT_THAT(Refusal("a \x1b[2J"), HasSubstr("\\x1b"));
  EXPECT_THAT(Refusal("a 2\na 3"), HasSubstr("earlier tensor"));
  EXPECT_THAT(Refusal("a 2000000 2000000"), HasSubstr("larger"));
  EXPECT_THAT(Refusal("# Nothing.\n"), HasSubstr("no tensor"));
}

TEST(TableFile, ErrorsNameTheFile) {
  const std::string path = ::testing::TempDir() + "table_file_test.txt";
  std::ofstream(path) << "a two\n";
  EXPECT_THAT(std::string(ReadTensorTable(path).status().message()), StartsWith(path));
  std::ofstream(path) << "a 2\n";
  EXPECT_TRUE(ReadTensorTable(path).ok());
  std::remove(path.c_str());
  EXPECT_EQ(ReadTensorTable(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadTensorTable(::testing::TempDir()).ok());
}

}  // namespace
}  // namespace sluice::bench
