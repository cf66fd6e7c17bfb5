// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/idx_file.h"

#include <sys/stat.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Word(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// Three images of 2 × 2 with pixels 0 … 11, and their labels.
std::string Images() {
  std::string bytes = absl::StrCat(Word(0x803), Word(3), Word(2), Word(2));
  for (char pixel = 0; pixel < 12; ++pixel) bytes.push_back(pixel);
  return bytes;
}
std::string Labels(std::string labels = {1, 9, 0}) {
  return absl::StrCat(Word(0x801), Word(static_cast<uint32_t>(labels.size())), labels);
}

// Files with the test's name as a prefix.
class IdxFileTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), "/",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name(), "-", name);
  }
  std::string Plain(const std::string& name, const std::string& bytes) {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  std::string Gzip(const std::string& name, const std::string& bytes) {
    gzFile file = gzopen(Path(name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return Path(name);
  }
  std::string ReadBack(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string Problem(const std::string& images, const std::string& labels) {
    const auto set = ReadIdxImages(images, labels, 0);
    return set.ok() ? "none" : std::string(set.status().message());
  }
};

TEST_F(IdxFileTest, ReadsPlainAndGzipAlike) {
  for (const bool gzip : {false, true}) {
    const auto set = gzip ? ReadIdxImages(Gzip("i.gz", Images()), Gzip("l.gz", Labels()), 0)
                          : ReadIdxImages(Plain("i", Images()), Plain("l", Labels()), 0);
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_EQ(set->count, 3);
    EXPECT_EQ(set->shape().bytes(), 4);
    EXPECT_EQ(set->classes, 10);
    EXPECT_THAT(set->labels, ElementsAre(1, 9, 0));
    EXPECT_THAT(set->pixels, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  }
}

TEST_F(IdxFileTest, LimitReadsTheFirst) {
  const auto set = ReadIdxImages(Plain("i", Images()), Plain("l", Labels()), 2);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->count, 2);
  EXPECT_THAT(set->labels, ElementsAre(1, 9));
  EXPECT_EQ(set->pixels.size(), 8);
}

TEST_F(IdxFileTest, ATruncatedFileIsToldAtEveryLength) {
  const std::string labels = Plain("l", Labels());
  const std::string whole = Images();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(Problem(Plain("i", whole.substr(0, size)), labels), HasSubstr("truncated")) << size;
  }
}

TEST_F(IdxFileTest, ATruncatedGzipFileIsToldAtEveryLength) {
  const std::string labels = Plain("l", Labels());
  const std::string whole = ReadBack(Gzip("whole.gz", Images()));
  for (size_t size = 0; size + 8 < whole.size(); ++size) {  // The last 8 bytes are gzip's checksum.
    const auto set = ReadIdxImages(Plain("i.gz", whole.substr(0, size)), labels, 0);
    EXPECT_FALSE(set.ok()) << size;
  }
}

TEST_F(IdxFileTest, ADamagedGzipFileIsAnError) {
  std::string bytes = ReadBack(Gzip("whole.gz", Images()));
  bytes[bytes.size() - 6] ^= 1;  // A bit of the checksum.
  EXPECT_NE(Problem(Plain("i.gz", bytes), Plain("l", Labels())), "none");
}

TEST_F(IdxFileTest, WrongKindsOfFileAreTold) {
  const std::string labels = Plain("l", Labels());
  EXPECT_THAT(Problem(labels, labels), HasSubstr("mixed up"));
  EXPECT_THAT(Problem(Plain("i", "PNG is not idx"), labels), HasSubstr("not an idx file"));
  std::string floats = Images();
  floats[2] = 0x0D;
  EXPECT_THAT(Problem(Plain("i", floats), labels), HasSubstr("type 13"));
  EXPECT_THAT(Problem(Plain("i", Images() + "x"), labels), HasSubstr("longer than"));
  EXPECT_THAT(Problem(Path("absent"), labels), AllOf(HasSubstr("absent"), HasSubstr("opened")));
}

TEST_F(IdxFileTest, ANamedPipeIsRefusedInsteadOfWaitingForItsWriter) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(Problem(pipe, Plain("labels", Labels())),
              HasSubstr(pipe + ": is not a regular file"));
  EXPECT_THAT(Problem(Plain("images", Images()), pipe),
              HasSubstr(pipe + ": is not a regular file"));
  std::filesystem::remove(pipe);
}

TEST_F(IdxFileTest, LyingSizesNeitherCrashNorAllocate) {
  const std::string labels = Plain("l", Labels());
  const std::string huge = absl::StrCat(Word(0x803), Word(0xFFFFFFFF), Word(0xFFFF), Word(0xFFFF));
  EXPECT_THAT(Problem(Plain("i", huge), labels), HasSubstr("limit"));
  const std::string large = absl::StrCat(Word(0x803), Word(1 << 20), Word(64), Word(64));
  EXPECT_THAT(Problem(Plain("i", large), labels), HasSubstr("truncated"));
  const std::string empty = absl::StrCat(Word(0x803), Word(0), Word(2), Word(2));
  EXPECT_THAT(Problem(Plain("i", empty), labels), HasSubstr("is empty"));
}

TEST_F(IdxFileTest, LabelsMustGoWithTheImages) {
  const std::string images = Plain("i", Images());
  EXPECT_THAT(Problem(images, Plain("few", Labels({1, 2}))), HasSubstr("2 labels"));
  EXPECT_THAT(Problem(images, Plain("odd", Labels({1, 10, 0}))),
              AllOf(HasSubstr("label 10"), HasSubstr("sample 1"), HasSubstr("out of range")));
}

}  // namespace
}  // namespace sluice::worker
