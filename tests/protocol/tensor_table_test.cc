// SPDX-License-Identifier: Apache-2.0
#include "protocol/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace sluice::protocol {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TensorTable SmallTable() {
  return {{"conv.weight", {16, 1, 3, 3}, {}, DType::kFloat32},
          {"conv.bias", {16}, {}, DType::kFloat32},
          {"scale", {}, {}, DType::kFloat32}};
}

std::string Refusal(TensorInfo tensor) {
  const TensorTable table = {{"first", {2}, {}, DType::kFloat32}, std::move(tensor)};
  const absl::Status status = ValidateTensorTable(table);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TensorTable, CountsElements) {
  EXPECT_EQ(TotalElements(SmallTable()), 144u + 16u + 1u);
  EXPECT_EQ((TensorInfo{"a", {2, -3}, {}, DType::kFloat32}).elements(), 0u);
  const int64_t large = int64_t{1} << 40;
  EXPECT_EQ((TensorInfo{"a", {large, large}, {}, DType::kFloat32}).elements(), UINT64_MAX);
}

TEST(TensorTable, AcceptsDenseStrides) {
  EXPECT_TRUE(ValidateTensorTable(SmallTable()).ok());
  // The strides are channels-last, and one dimension of size 1 has an irrelevant stride.
  EXPECT_TRUE(ValidateTensorTable({{"a", {2, 3, 4, 5}, {60, 1, 15, 3}, DType::kFloat32}}).ok());
  EXPECT_TRUE(ValidateTensorTable({{"a", {1, 3}, {77, 1}, DType::kFloat32}}).ok());
}

TEST(TensorTable, RefusesAndNamesTheTensor) {
  EXPECT_THAT(ValidateTensorTable({}).message(), HasSubstr("no tensors"));
  EXPECT_THAT(Refusal({"", {2}, {}, DType::kFloat32}), HasSubstr("no name"));
  EXPECT_THAT(Refusal({"first", {2}, {}, DType::kFloat32}),
              AllOf(HasSubstr("tensor 1"), HasSubstr("earlier tensor")));
  EXPECT_THAT(Refusal({"b", {2, 0}, {}, DType::kFloat32}), HasSubstr("dimension of 0"));
  EXPECT_THAT(Refusal({"b", {2, -4}, {}, DType::kFloat32}), HasSubstr("dimension of -4"));
  EXPECT_THAT(Refusal({"b", {int64_t{1} << 41}, {}, DType::kFloat32}), HasSubstr("larger"));
  EXPECT_THAT(Refusal({"b", {2, 2}, {1}, DType::kFloat32}), HasSubstr("1 strides"));
  EXPECT_THAT(Refusal({"b", {2, 2}, {4, 1}, DType::kFloat32}), HasSubstr("gaps"));
  EXPECT_THAT(Refusal({"b", {2, 2}, {1, 1}, DType::kFloat32}), HasSubstr("overlap"));
  EXPECT_THAT(Refusal({"b", {2}, {}, static_cast<DType>(9)}), HasSubstr("dtype 9"));
  EXPECT_THAT(Refusal({std::string(kMaxTensorNameSize + 1, 'n'), {2}, {}, DType::kFloat32}),
              HasSubstr("limit is 512"));
  EXPECT_THAT(Refusal({"b", std::vector<int64_t>(65, 1), {}, DType::kFloat32}),
              HasSubstr("65 dimensions"));
  EXPECT_THAT(Refusal({"b\xff", {2}, {}, DType::kFloat32}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(Refusal({"b\n\x1b", {0}, {}, DType::kFloat32}), HasSubstr("b\\n\\x1b"));
}

TEST(TensorTable, HashSeesEveryPart) {
  std::set<uint64_t> hashes = {HashTensorTable(SmallTable())};
  const auto add = [&hashes](auto change) {
    TensorTable table = SmallTable();
    change(&table);
    EXPECT_TRUE(hashes.insert(HashTensorTable(table)).second);
  };
  add([](TensorTable* t) { (*t)[0].name = "conv.Weight"; });
  add([](TensorTable* t) { (*t)[0].shape = {1, 16, 3, 3}; });
  add([](TensorTable* t) { (*t)[1].shape = {16, 1}; });
  add([](TensorTable* t) { (*t)[1].strides = {1}; });
  add([](TensorTable* t) { (*t)[1].dtype = DType::kBFloat16; });
  add([](TensorTable* t) { std::swap((*t)[0], (*t)[1]); });
  add([](TensorTable* t) { t->pop_back(); });
}

TEST(TensorTable, BuffersComeAfterAllThatIsTrained) {
  const TensorInfo buffer = {"mean", {16}, {}, DType::kFloat32, TensorRole::kBuffer};
  TensorTable table = SmallTable();
  table.push_back(buffer);
  EXPECT_TRUE(ValidateTensorTable(table).ok());
  EXPECT_EQ(TrainedTensors(table), 3u);
  EXPECT_EQ(TrainedElements(table), 144u + 16u + 1u);
  EXPECT_EQ(TotalElements(table), 144u + 16u + 1u + 16u);
  EXPECT_EQ(TrainedTensors(SmallTable()), 3u);
  table.push_back({"late", {2}, {}, DType::kFloat32});
  EXPECT_THAT(ValidateTensorTable(table).message(),
              AllOf(HasSubstr("tensor 4, late"), HasSubstr("put buffers last")));
  EXPECT_THAT(
      ValidateTensorTable({buffer}).message(),
      AllOf(HasSubstr("mean [16] float32 buffer"), HasSubstr("trained tensors come first")));
  EXPECT_THAT(Refusal({"b", {2}, {}, DType::kFloat32, static_cast<TensorRole>(7)}),
              HasSubstr("role 7"));
}

TEST(TensorTable, TheRoleIsPartOfWhatAllAgreeOn) {
  TensorTable trained = {{"a", {2}, {}, DType::kFloat32}, {"b", {2}, {}, DType::kFloat32}};
  TensorTable buffered = trained;
  buffered[1].role = TensorRole::kBuffer;
  EXPECT_NE(HashTensorTable(trained), HashTensorTable(buffered));
  EXPECT_THAT(DescribeDifference(trained, buffered),
              AllOf(HasSubstr("b [2] float32 here"), HasSubstr("b [2] float32 buffer there")));
}

// A table without buffers must have the same hash as before tensors had roles.
TEST(TensorTable, RolesChangeNoHashOfATableWithoutBuffers) {
  EXPECT_EQ(HashTensorTable(SmallTable()), 0x3EEB84D7C90BB779u);
}

TEST(TensorTable, HashIsTheSameEverywhere) {
  EXPECT_EQ(HashTensorTable({}), 0xA8C7F832281A39C5u);  // FNV-1a of eight zero bytes.
  EXPECT_EQ(HashTensorTable(SmallTable()), HashTensorTable(SmallTable()));
}

TEST(TensorTable, DescribesTheFirstDifference) {
  const TensorTable here = SmallTable();
  TensorTable there = here;
  EXPECT_EQ(DescribeDifference(here, there), "");
  there[1].shape = {32};
  EXPECT_THAT(DescribeDifference(here, there), AllOf(HasSubstr("tensor 1 is conv.bias [16]"),
                                                     HasSubstr("conv.bias [32] float32 there")));
  there = here;
  there[1].strides = {1};
  EXPECT_THAT(DescribeDifference(here, there), HasSubstr("strides [1] there"));
  there = here;
  there.pop_back();
  EXPECT_THAT(DescribeDifference(here, there),
              AllOf(HasSubstr("3 tensors here and 2"), HasSubstr("tensor 2, scale"),
                    HasSubstr("is only here")));
  EXPECT_THAT(DescribeDifference(there, here), HasSubstr("is only there"));
}

}  // namespace
}  // namespace sluice::protocol
