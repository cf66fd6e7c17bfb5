// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/image_source.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"
#include "tests/worker/data/source/made_images.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Normalization, IsOfAllPixels) {
  LabelledImages images;
  images.count = 1;
  images.height = 1;
  images.width = 4;
  images.pixels = {0, 0, 255, 255};
  EXPECT_FLOAT_EQ(MeasureNormalization(images).mean[0], 0.5f);
  EXPECT_FLOAT_EQ(MeasureNormalization(images).deviation[0], 0.5f);
  images.pixels = {7, 7, 7, 7};
  EXPECT_EQ(MeasureNormalization(images).deviation[0], 1.0f);
}

TEST(Normalization, IsOfEachChannel) {
  LabelledImages images;
  images.count = 2;
  images.channels = 2;
  images.height = 1;
  images.width = 2;
  images.pixels = {0, 255, 51, 51, 255, 0, 51, 51};
  const Normalization found = MeasureNormalization(images);
  EXPECT_THAT(found.mean, ElementsAre(0.5f, 0.2f));
  EXPECT_THAT(found.deviation, ElementsAre(0.5f, 1.0f));
}

std::vector<uint8_t> Read(const ImageSource& source, uint32_t sample, EpochKey epoch = {}) {
  std::vector<uint8_t> pixels(source.shape().bytes());
  const absl::StatusOr<uint32_t> label = source.Read(sample, epoch, absl::MakeSpan(pixels));
  EXPECT_TRUE(label.ok()) << label.status();
  return pixels;
}

job::DataSpec Spec(job::DataFormat format) {
  job::DataSpec spec;
  spec.format = format;
  spec.limit = 20;
  spec.test_limit = 20;
  return spec;
}

TEST(ImageSource, SyntheticImagesAreTheSameEachTimeAndTestImagesAreOthers) {
  for (const job::DataFormat format :
       {job::DataFormat::kSynthetic, job::DataFormat::kSyntheticCifar}) {
    const auto once = OpenTrainingImages(Spec(format));
    const auto again = OpenTrainingImages(Spec(format));
    ASSERT_TRUE(once.ok() && again.ok());
    const auto test = OpenTestImages(Spec(format), *once->source);
    ASSERT_TRUE(test.ok());
    EXPECT_EQ(once->source->size(), 20u);
    EXPECT_EQ((*test)->size(), 20u);
    EXPECT_EQ(Read(*once->source, 3), Read(*again->source, 3));
    EXPECT_NE(Read(*once->source, 3), Read(**test, 3));
  }
}

TEST(ImageSource, TrainingImagesAreAugmentedAndTestImagesAreNot) {
  job::DataSpec spec = Spec(job::DataFormat::kSyntheticCifar);
  const auto plain = OpenTrainingImages(spec);
  spec.crop_padding = 4;
  spec.flip = true;
  const auto training = OpenTrainingImages(spec);
  ASSERT_TRUE(plain.ok() && training.ok());
  const auto test = OpenTestImages(spec, *training->source);
  ASSERT_TRUE(test.ok());
  const EpochKey first = {.seed = 1, .epoch = 0};
  const EpochKey second = {.seed = 1, .epoch = 1};
  EXPECT_EQ(Read(*plain->source, 0, first), Read(*plain->source, 0, second));
  EXPECT_NE(Read(*training->source, 0, first), Read(*training->source, 0, second));
  EXPECT_EQ(Read(*training->source, 0, first), Read(*training->source, 0, first));
  EXPECT_EQ(Read(**test, 0, first), Read(**test, 0, second));
  // The normalization is measured before augmentation, so it excludes black borders.
  EXPECT_EQ(training->normalization.mean, plain->normalization.mean);
}

TEST(ImageSource, NormalizationCanBeGiven) {
  job::DataSpec spec = Spec(job::DataFormat::kSyntheticCifar);
  const auto measured = OpenTrainingImages(spec);
  spec.mean = {0.1, 0.2, 0.3};
  const auto given = OpenTrainingImages(spec);
  ASSERT_TRUE(measured.ok() && given.ok());
  EXPECT_THAT(given->normalization.mean, ElementsAre(0.1f, 0.2f, 0.3f));
  EXPECT_EQ(given->normalization.deviation, measured->normalization.deviation);
  spec.std = {0.5};
  EXPECT_THAT(std::string(OpenTrainingImages(spec).status().message()),
              AllOf(HasSubstr("data.std has 1 values"), HasSubstr("3 channels")));
}

TEST(ImageSource, OtherFormatsAreTold) {
  EXPECT_THAT(std::string(OpenTrainingImages(Spec(job::DataFormat::kCustom)).status().message()),
              HasSubstr("own_loop.cc"));
  EXPECT_FALSE(OpenTrainingImages(Spec(job::DataFormat::kText)).ok());
}

class FolderSourceTest : public ::testing::Test {
 protected:
  FolderSourceTest() {
    spec_.format = job::DataFormat::kImageFolder;
    spec_.path = folder_.path();
    spec_.train_folder = "train";
    spec_.test_folder = "val";
    spec_.image_size = 8;
    Write("train/red/1.png", MakePng(MakeFlat(20, 30, 255, 0, 0)));
    Write("train/green/1.png", MakePng(MakePixels(40, 30)));
    Write("val/red/1.png", MakePng(MakeFlat(9, 9, 250, 0, 0)));
  }
  void Write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    WriteText(path.string(), bytes);
  }

  const TemporaryFolder folder_;
  job::DataSpec spec_;
};

TEST_F(FolderSourceTest, ImagesAreScaledAndLabelled) {
  const auto training = OpenTrainingImages(spec_);
  ASSERT_TRUE(training.ok()) << training.status();
  const ImageSource& source = *training->source;
  EXPECT_EQ(source.size(), 2u);
  EXPECT_EQ(source.classes(), 2u);
  EXPECT_EQ(source.shape().bytes(), 192u);
  EXPECT_FLOAT_EQ(training->normalization.mean[0], 0.485f);
  std::vector<uint8_t> pixels(192);
  EXPECT_EQ(source.Read(0, {}, absl::MakeSpan(pixels)).value(), 0u);  // green
  EXPECT_EQ(source.Read(1, {}, absl::MakeSpan(pixels)).value(), 1u);
  EXPECT_THAT(absl::MakeSpan(pixels).first(64), Each(255));
  EXPECT_THAT(absl::MakeSpan(pixels).last(128), Each(0));
  const auto test = OpenTestImages(spec_, source);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 1u);
  EXPECT_EQ((*test)->Read(0, {}, absl::MakeSpan(pixels)).value(), 1u);
  EXPECT_EQ(pixels[0], 250);
}

TEST_F(FolderSourceTest, RandomCropsDifferByEpochAndRepeat) {
  spec_.random_resized_crop = 0.08;
  spec_.flip = true;
  const auto training = OpenTrainingImages(spec_);
  ASSERT_TRUE(training.ok()) << training.status();
  const auto read = [&](uint64_t epoch) {
    return Read(*training->source, 0, {.seed = 3, .epoch = epoch});
  };
  EXPECT_EQ(read(0), read(0));
  EXPECT_NE(read(0), read(1));
}

// A file with an intact header but damaged pixels opens without an error. Reading it must fail and
// name the file.
TEST_F(FolderSourceTest, ABrokenFileIsNamedWhenItsTurnComes) {
  const std::string jpeg = MakeJpeg(MakePixels(40, 30));
  Write("train/red/0.jpg", jpeg.substr(0, jpeg.size() / 2));
  const auto training = OpenTrainingImages(spec_);
  ASSERT_TRUE(training.ok()) << training.status();
  std::vector<uint8_t> pixels(192);
  EXPECT_THAT(std::string(training->source->Read(1, {}, absl::MakeSpan(pixels)).status().message()),
              AllOf(HasSubstr("/train/red/0.jpg: "), HasSubstr("truncated")));
  std::filesystem::remove(folder_.path() + "/train/red/0.jpg");
  EXPECT_THAT(std::string(training->source->Read(1, {}, absl::MakeSpan(pixels)).status().message()),
              HasSubstr("/train/red/0.jpg: cannot be opened"));
}

TEST(ImageSource, CifarFilesHaveTheirOwnNames) {
  const TemporaryFolder folder;
  job::DataSpec spec;
  spec.format = job::DataFormat::kCifar10;
  spec.path = folder.path();
  const std::string record(3073, '\2');
  for (int i = 1; i <= 5; ++i) {
    WriteText(absl::StrCat(folder.path(), "/data_batch_", i, ".bin"), record + record);
  }
  WriteText(folder.path() + "/test_batch.bin", record);
  EXPECT_THAT(std::string(OpenTrainingImages(spec).status().message()),
              AllOf(HasSubstr("/data_batch_1.bin: holds 2 images"), HasSubstr("has 10000")));
  spec.limit = 10;
  const auto training = OpenTrainingImages(spec);
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_EQ(training->source->size(), 10u);
  EXPECT_THAT(std::string(OpenTestImages(spec, *training->source).status().message()),
              AllOf(HasSubstr("/test_batch.bin: holds 1 images"), HasSubstr("data.test_limit")));
  spec.test_limit = 1;
  const auto test = OpenTestImages(spec, *training->source);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 1u);
  spec.format = job::DataFormat::kCifar100;
  EXPECT_THAT(std::string(OpenTrainingImages(spec).status().message()), HasSubstr("/train.bin"));
  WriteText(folder.path() + "/train.bin", std::string(3074, '\2'));
  EXPECT_EQ(OpenTrainingImages(spec)->source->classes(), 100u);
  spec.labels = "coarse";
  EXPECT_EQ(OpenTrainingImages(spec)->source->classes(), 20u);
  spec.limit = 0;
  EXPECT_THAT(std::string(OpenTrainingImages(spec).status().message()),
              AllOf(HasSubstr("/train.bin: holds 1 images"), HasSubstr("has 50000")));
}

TEST(ImageSource, TestImagesAreAsLargeAsTrainingImages) {
  const TemporaryFolder folder;
  const auto word = [](char value) { return std::string({0, 0, 0, value}); };
  const std::string magic = {0, 0, 8, 3};
  const std::string labels = std::string({0, 0, 8, 1}) + word(1) + std::string(1, '\0');
  WriteText(folder.path() + "/a", magic + word(1) + word(2) + word(2) + "1234");
  WriteText(folder.path() + "/b", magic + word(1) + word(2) + word(3) + "123456");
  WriteText(folder.path() + "/l", labels);
  job::DataSpec spec;
  spec.format = job::DataFormat::kIdx;
  spec.path = folder.path();
  spec.train_images = "a";
  spec.train_labels = "l";
  spec.test_images = "b";
  spec.test_labels = "l";
  const auto training = OpenTrainingImages(spec);
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_THAT(std::string(OpenTestImages(spec, *training->source).status().message()),
              AllOf(HasSubstr("2 × 3"), HasSubstr("do not belong to one data set")));
}

}  // namespace
}  // namespace sluice::worker
