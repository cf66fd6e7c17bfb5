// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/image_decoder.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"
#include "tests/worker/data/source/made_images.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Problem(absl::string_view bytes) {
  const absl::StatusOr<RgbImage> image = DecodeImage(bytes, "a/b.png");
  if (image.ok()) return "none";
  EXPECT_THAT(std::string(image.status().message()), StartsWith("a/b.png: "));
  return std::string(image.status().message());
}

RgbImage MustDecode(absl::string_view bytes) {
  const absl::StatusOr<RgbImage> image = DecodeImage(bytes, "image");
  EXPECT_TRUE(image.ok()) << image.status();
  return image.value_or(RgbImage{});
}

TEST(ImageDecoder, PngComesOutAsItWentIn) {
  const RgbImage image = MakePixels(7, 5);
  const RgbImage decoded = MustDecode(MakePng(image));
  EXPECT_EQ(decoded.size.width, 7u);
  EXPECT_EQ(decoded.size.height, 5u);
  EXPECT_EQ(decoded.pixels, image.pixels);
}

TEST(ImageDecoder, JpegComesOutNearly) {
  const RgbImage image = MakeFlat(9, 17, 200, 30, 90);
  for (const bool progressive : {false, true}) {
    const RgbImage decoded = MustDecode(MakeJpeg(image, progressive));
    ASSERT_EQ(decoded.pixels.size(), image.pixels.size());
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      EXPECT_LE(std::abs(decoded.pixels[i] - image.pixels[i]), 2) << i;
    }
  }
}

TEST(ImageDecoder, OtherColoursBecomeRgb) {
  EXPECT_THAT(MustDecode(MakePngOf(2, 1, 1, {10, 200})).pixels,
              ElementsAre(10, 10, 10, 200, 200, 200));
  // Opaque pixels must not change, and transparent ones become black.
  EXPECT_THAT(MustDecode(MakePngOf(2, 1, 4, {9, 8, 7, 255, 9, 8, 7, 0})).pixels,
              ElementsAre(9, 8, 7, 0, 0, 0));
  EXPECT_THAT(MustDecode(MakePngOf(1, 1, 2, {50, 255})).pixels, ElementsAre(50, 50, 50));
}

TEST(ImageDecoder, InksBecomeColours) {
  std::vector<uint8_t> inks;
  for (int i = 0; i < 64; ++i) inks.insert(inks.end(), {255, 100, 0, 200});
  const RgbImage decoded = MustDecode(MakeCmykJpeg(8, 8, inks));
  ASSERT_EQ(decoded.pixels.size(), 192u);
  EXPECT_NEAR(decoded.pixels[0], 200, 3);
  EXPECT_NEAR(decoded.pixels[1], 78, 3);
  EXPECT_NEAR(decoded.pixels[2], 0, 3);
}

TEST(ImageDecoder, TruncatedFilesAreToldAtEveryLength) {
  const std::string png = MakePng(MakePixels(7, 5));
  for (size_t size = 0; size + 16 < png.size(); ++size) {  // Bytes after the pixels are not read.
    EXPECT_NE(Problem(png.substr(0, size)), "none") << size;
  }
  for (const bool progressive : {false, true}) {
    const std::string jpeg = MakeJpeg(MakePixels(24, 16), progressive);
    for (size_t size = 0; size + 2 < jpeg.size(); ++size) {
      EXPECT_NE(Problem(jpeg.substr(0, size)), "none") << size;
    }
  }
  EXPECT_EQ(Problem(""), "a/b.png: is empty");
  EXPECT_THAT(Problem(png.substr(0, png.size() / 2)),
              AllOf(HasSubstr("damaged or truncated"), HasSubstr("fetch the file again")));
}

// A damaged file may give any result, but must not cause a crash or an invalid memory access, which
// the address sanitizer would report.
TEST(ImageDecoder, DamagedFilesDoNoHarm) {
  for (const std::string& whole : {MakePng(MakePixels(7, 5)), MakeJpeg(MakePixels(16, 9)),
                                   MakeJpeg(MakePixels(16, 9), /*progressive=*/true)}) {
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xFF}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        const absl::StatusOr<RgbImage> image = DecodeImage(damaged, "damaged");
        if (image.ok()) continue;
        EXPECT_THAT(std::string(image.status().message()), StartsWith("damaged"));
      }
    }
  }
}

TEST(ImageDecoder, ADamagedPngChunkIsTold) {
  std::string png = MakePng(MakePixels(7, 5));
  png[png.size() - 20] ^= 1;  // A bit within the pixels.
  EXPECT_THAT(Problem(png), HasSubstr("damaged or truncated"));
}

TEST(ImageDecoder, LyingSizesNeitherCrashNorAllocate) {
  const std::string png = MakePng(MakePixels(2, 2));
  EXPECT_THAT(Problem(WithPngSize(png, 11000, 11000)),
              AllOf(HasSubstr("11000 × 11000"), HasSubstr("bytes cannot hold")));
  EXPECT_THAT(Problem(WithPngSize(png, 900000, 900000)), HasSubstr("the limit is"));
  EXPECT_NE(Problem(WithPngSize(png, 0xFFFFFFFF, 0xFFFFFFFF)), "none");
  EXPECT_NE(Problem(WithPngSize(png, 0, 2)), "none");
  EXPECT_THAT(Problem(WithPngSize(png, 2, 3)), HasSubstr("damaged or truncated"));
  const std::string jpeg = MakeJpeg(MakePixels(8, 8));
  EXPECT_THAT(Problem(WithJpegSize(jpeg, 0xFFDC, 0xFFDC)), HasSubstr("the limit is"));
  EXPECT_THAT(Problem(WithJpegSize(jpeg, 11000, 11000)), HasSubstr("bytes cannot hold"));
  EXPECT_NE(Problem(WithJpegSize(jpeg, 0, 8)), "none");
  EXPECT_THAT(Problem(WithJpegSize(jpeg, 8, 200)), HasSubstr("damaged or truncated"));
}

TEST(ImageDecoder, OtherFilesAreTold) {
  EXPECT_EQ(DecodeImage("GIF89a and so on", "a/b.png").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Problem("GIF89a and so on"),
              AllOf(HasSubstr("neither PNG nor JPEG"), HasSubstr("starts with 0x47494638")));
  EXPECT_THAT(Problem("\x89PNG"), HasSubstr("neither PNG nor JPEG"));
  EXPECT_THAT(Problem("x"), HasSubstr("0x78"));
}

TEST(ImageDecoder, HeadersAreReadFromFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/x.jpg";
  WriteText(path, MakePng(MakePixels(7, 5)));  // The first bytes decide, not the name.
  const absl::StatusOr<ImageSize> size = CheckImageFile(path);
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->width, 7u);
  EXPECT_EQ(size->height, 5u);
  WriteText(path, MakePng(MakePixels(7, 5)).substr(0, 20));
  EXPECT_THAT(std::string(CheckImageFile(path).status().message()),
              AllOf(StartsWith(path), HasSubstr("damaged or truncated")));
  EXPECT_TRUE(absl::IsNotFound(CheckImageFile(folder.path() + "/none").status()));
  EXPECT_THAT(std::string(CheckImageFile(folder.path()).status().message()),
              HasSubstr("is a folder"));
}

TEST(ImageDecoder, BytesBetweenAJpegsPartsAreNoDamage) {
  const RgbImage image = MakeFlat(8, 8, 200, 30, 90);
  std::string jpeg = MakeJpeg(image);
  const RgbImage decoded = MustDecode(jpeg);
  jpeg.insert(jpeg.size() - 2, "some more");
  EXPECT_EQ(MustDecode(jpeg).pixels, decoded.pixels);
}

// Cameras put previews and notes before the size. A long header must be read.
TEST(ImageDecoder, HeadersMayBeLong) {
  const TemporaryFolder folder;
  std::string jpeg = MakeJpeg(MakePixels(8, 8));
  for (int i = 0; i < 2; ++i) {
    const std::string comment = "\xFF\xFE\xFF\xFF" + std::string(0xFFFF - 2, 'n');
    jpeg.insert(2, comment);
  }
  const std::string path = folder.path() + "/x.jpg";
  WriteText(path, jpeg);
  const absl::StatusOr<ImageSize> size = CheckImageFile(path);
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->width, 8u);
}

}  // namespace
}  // namespace sluice::worker
