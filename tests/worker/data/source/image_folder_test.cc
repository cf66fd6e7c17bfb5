// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/image_folder.h"

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageFolderTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    WriteText(path.string(), bytes);
  }
  std::string Problem(const std::vector<std::string>* classes = nullptr) {
    const absl::StatusOr<ImageFolder> folder = ListImageFolder(folder_.path(), classes, 0);
    return folder.ok() ? "none" : std::string(folder.status().message());
  }
  std::vector<std::string> Files(uint32_t limit,
                                 const std::vector<std::string>* classes = nullptr) {
    const absl::StatusOr<ImageFolder> folder = ListImageFolder(folder_.path(), classes, limit);
    EXPECT_TRUE(folder.ok()) << folder.status();
    std::vector<std::string> files;
    for (const ImageFolder::File& file : folder.value_or(ImageFolder{}).files) {
      files.push_back(absl::StrCat(file.label, ":", file.name));
    }
    return files;
  }

  const TemporaryFolder folder_;
  const std::string png_ = MakePng(MakePixels(3, 2));
  const std::string jpeg_ = MakeJpeg(MakePixels(3, 2));
};

TEST_F(ImageFolderTest, ClassesAndFilesAreInOrderOfTheirNames) {
  Write("dog/b.png", png_);
  Write("dog/a.JPEG", jpeg_);
  Write("Zebra/1.jpg", jpeg_);
  Write("cat/x.PNG", jpeg_);  // The bytes decide the format.
  Write("cat/.hidden", "not looked at");
  Write(".git/y.png", "neither");
  const absl::StatusOr<ImageFolder> folder = ListImageFolder(folder_.path(), nullptr, 0);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->classes, ElementsAre("Zebra", "cat", "dog"));
  EXPECT_THAT(Files(0), ElementsAre("0:1.jpg", "1:x.PNG", "2:a.JPEG", "2:b.png"));
  EXPECT_EQ(folder->PathOf(folder->files[2]), folder_.path() + "/dog/a.JPEG");
}

TEST_F(ImageFolderTest, ALimitTakesOfAllClasses) {
  for (const char* name : {"a/1.png", "a/2.png", "a/3.png", "b/4.png", "b/5.png", "b/6.png"}) {
    Write(name, png_);
  }
  EXPECT_THAT(Files(2), ElementsAre("0:1.png", "1:4.png"));
  EXPECT_THAT(Files(4), ElementsAre("0:1.png", "0:2.png", "1:4.png", "1:5.png"));
  EXPECT_EQ(Files(6).size(), 6u);
  EXPECT_EQ(Files(7).size(), 6u);
}

TEST_F(ImageFolderTest, TestImagesHaveTheTrainingImagesClasses) {
  Write("dog/a.png", png_);
  const std::vector<std::string> classes = {"cat", "dog", "owl"};
  EXPECT_THAT(Files(0, &classes), ElementsAre("1:a.png"));
  Write("dgo/a.png", png_);
  EXPECT_THAT(Problem(&classes), AllOf(HasSubstr("/dgo: "), HasSubstr("no class with this name")));
}

TEST_F(ImageFolderTest, WhatIsNoImageIsTold) {
  Write("cat/a.png", png_);
  Write("cat/notes.txt", "x");
  EXPECT_THAT(Problem(), AllOf(HasSubstr("/cat/notes.txt: is not an image"), HasSubstr(".png")));
  std::filesystem::remove(folder_.path() + "/cat/notes.txt");
  Write("cat/more/a.png", png_);
  EXPECT_THAT(Problem(), HasSubstr("/cat/more: is a folder"));
  std::filesystem::remove_all(folder_.path() + "/cat/more");
  EXPECT_EQ(Problem(), "none");
  Write("readme.md", "x");
  EXPECT_THAT(Problem(), AllOf(HasSubstr("/readme.md: "), HasSubstr("only folders of classes")));
}

TEST_F(ImageFolderTest, WhatIsMissingIsTold) {
  EXPECT_THAT(Problem(), HasSubstr("contains no folders"));
  std::filesystem::create_directories(folder_.path() + "/cat");
  EXPECT_THAT(Problem(), HasSubstr("/cat: holds no images"));
  EXPECT_TRUE(absl::IsNotFound(ListImageFolder(folder_.path() + "/val", nullptr, 0).status()));
}

TEST_F(ImageFolderTest, BrokenHeadersAreToldAtTheStart) {
  Write("cat/a.png", png_);
  for (const std::string& broken : {std::string(), png_.substr(0, 30), jpeg_.substr(0, 20),
                                    std::string("GIF89a, or so"), WithPngSize(png_, 0, 5)}) {
    Write("cat/b.png", broken);
    EXPECT_THAT(Problem(), HasSubstr("/cat/b.png: ")) << broken.size();
  }
  std::filesystem::remove(folder_.path() + "/cat/b.png");
  std::filesystem::create_symlink("nowhere", folder_.path() + "/cat/c.png");
  EXPECT_THAT(Problem(), HasSubstr("/cat/c.png: cannot be opened"));
}

}  // namespace
}  // namespace sluice::worker
