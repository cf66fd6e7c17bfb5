// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/cifar_files.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An image whose red, green and blue planes are `first`, `first` + 1 and `first` + 2.
std::string Record(const std::string& labels, int first) {
  std::string record = labels;
  for (int plane = 0; plane < 3; ++plane) {
    record += std::string(1024, static_cast<char>(first + plane));
  }
  return record;
}

class CifarFilesTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_.path() + "/" + name;
    WriteText(path, bytes);
    return path;
  }
  static std::string Problem(const std::vector<std::string>& paths,
                             CifarLabels labels = CifarLabels::kTen, uint32_t limit = 0) {
    const absl::StatusOr<LabelledImages> images =
        ReadCifarFiles(paths, labels, /*published=*/0, limit);
    return images.ok() ? "none" : std::string(images.status().message());
  }

  const TemporaryFolder folder_;
};

TEST_F(CifarFilesTest, ReadsBatchesInOrder) {
  const std::string one = Write("1.bin", Record("\3", 10) + Record("\4", 20));
  const std::string two = Write("2.bin", Record("\5", 30) + Record("\11", 40));
  const absl::StatusOr<LabelledImages> images =
      ReadCifarFiles({one, two}, CifarLabels::kTen, /*published=*/0, 0);
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(images->count, 4u);
  EXPECT_EQ(images->classes, 10u);
  EXPECT_EQ(images->channels, 3u);
  EXPECT_EQ(images->height, 32u);
  EXPECT_EQ(images->width, 32u);
  EXPECT_THAT(images->labels, ElementsAre(3, 4, 5, 9));
  ASSERT_EQ(images->pixels.size(), 4u * 3072);
  EXPECT_EQ(images->pixels[0], 10);
  EXPECT_EQ(images->pixels[1023], 10);
  EXPECT_EQ(images->pixels[1024], 11);
  EXPECT_EQ(images->pixels[3 * 3072 + 3071], 42);
}

TEST_F(CifarFilesTest, LimitReadsTheFirst) {
  const std::string one = Write("1.bin", Record("\3", 10) + Record("\4", 20));
  const std::string two = Write("2.bin", Record("\5", 30) + Record("\11", 40));
  const auto labels = [&](uint32_t limit) {
    return ReadCifarFiles({one, two}, CifarLabels::kTen, /*published=*/0, limit).value().labels;
  };
  EXPECT_THAT(labels(1), ElementsAre(3));
  EXPECT_THAT(labels(3), ElementsAre(3, 4, 5));
  EXPECT_THAT(labels(100), ElementsAre(3, 4, 5, 9));
}

TEST_F(CifarFilesTest, HundredClassesHaveTwoLabels) {
  const std::string path =
      Write("train.bin", Record("\23\143", 1) + Record(std::string(2, '\0'), 2));
  const auto fine = ReadCifarFiles({path}, CifarLabels::kHundredFine, /*published=*/0, 0);
  const auto coarse = ReadCifarFiles({path}, CifarLabels::kHundredCoarse, /*published=*/0, 0);
  ASSERT_TRUE(fine.ok() && coarse.ok()) << fine.status() << coarse.status();
  EXPECT_THAT(fine->labels, ElementsAre(99, 0));
  EXPECT_EQ(fine->classes, 100u);
  EXPECT_THAT(coarse->labels, ElementsAre(19, 0));
  EXPECT_EQ(coarse->classes, 20u);
  EXPECT_EQ(fine->pixels, coarse->pixels);
  EXPECT_EQ(fine->pixels[0], 1);
}

TEST_F(CifarFilesTest, TruncatedFilesAreToldAtEveryLength) {
  const std::string whole = Record("\3", 10) + Record("\4", 20);
  for (size_t size = 0; size < whole.size(); size += size % 3073 < 3 ? 1 : 307) {
    const std::string problem = Problem({Write("1.bin", whole.substr(0, size))});
    if (size == 3073) {  // A whole record.
      EXPECT_EQ(problem, "none");
    } else {
      EXPECT_THAT(problem,
                  AllOf(HasSubstr("1.bin: "), HasSubstr(size == 0 ? "is empty" : "truncated")))
          << size;
    }
  }
  const std::string one = Write("1.bin", whole);
  const std::string two = Write("2.bin", Record("\5", 30));
  EXPECT_THAT(Problem({one, two}),
              AllOf(HasSubstr("2.bin: holds 1 images"), HasSubstr("1.bin holds 2")));
  // The error also occurs if the limit needs only the first image.
  EXPECT_THAT(Problem({one, two}, CifarLabels::kTen, 1), HasSubstr("truncated"));
}

TEST_F(CifarFilesTest, FilesCutBetweenRecordsAreToldUnlessThereIsALimit) {
  const std::string one = Write("1.bin", Record("\3", 10) + Record("\4", 20));
  const auto read = [&](uint32_t published, uint32_t limit) {
    return ReadCifarFiles({one}, CifarLabels::kTen, published, limit);
  };
  EXPECT_EQ(read(2, 0).value().count, 2u);
  // A file with more than the published number is not truncated.
  EXPECT_EQ(read(1, 0).value().count, 2u);
  const absl::Status cut = read(3, 0).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.message()),
              AllOf(HasSubstr("1.bin: holds 2 images"), HasSubstr("CIFAR-10's has 3"),
                    HasSubstr("data.limit")));
  EXPECT_EQ(read(3, 1).value().count, 1u);
  EXPECT_EQ(read(3, 3).value().count, 2u);
}

TEST_F(CifarFilesTest, OtherFilesAreTold) {
  const std::string ten = Write("10.bin", Record("\3", 10));
  const std::string hundred = Write("100.bin", Record("\3\4", 10));
  EXPECT_THAT(Problem({hundred}), AllOf(HasSubstr("3074 bytes"), HasSubstr("which have 3073")));
  EXPECT_THAT(Problem({ten}, CifarLabels::kHundredFine), HasSubstr("of another data set"));
  EXPECT_THAT(Problem({folder_.path()}), HasSubstr("is a folder"));
  EXPECT_THAT(Problem({folder_.path() + "/data_batch_1.bin"}),
              AllOf(HasSubstr("data_batch_1.bin: cannot be opened"), HasSubstr("binary version")));
}

TEST_F(CifarFilesTest, LabelsAreClasses) {
  EXPECT_THAT(Problem({Write("1.bin", Record("\3", 1) + Record("\12", 2))}),
              AllOf(HasSubstr("label 10 of image 1"), HasSubstr("0 to 9")));
  const std::string path = Write("train.bin", Record("\24\144", 1));
  EXPECT_THAT(Problem({path}, CifarLabels::kHundredFine), HasSubstr("label 100 of image 0"));
  EXPECT_THAT(Problem({path}, CifarLabels::kHundredCoarse), HasSubstr("label 20 of image 0"));
}

}  // namespace
}  // namespace sluice::worker
