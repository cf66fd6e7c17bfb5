// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/data/source/made_images.h"

#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

#include <cstring>

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

std::string CompressJpeg(uint32_t width, uint32_t height, int format, const uint8_t* pixels,
                         int subsampling, int flags) {
  tjhandle handle = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // libjpeg-turbo's type.
  EXPECT_EQ(tjCompress2(handle, pixels, static_cast<int>(width), 0, static_cast<int>(height),
                        format, &bytes, &size, subsampling, 100, flags),
            0)
      << tjGetErrorStr2(handle);
  const std::string file(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(handle);
  return file;
}

void PutBigEndian(uint32_t value, char* to) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<char>(value >> (24 - 8 * i));
}

std::string WritePng(uint32_t width, uint32_t height, uint32_t format, const uint8_t* bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  png_alloc_size_t size = 0;
  EXPECT_NE(png_image_write_to_memory(&image, nullptr, &size, 0, bytes, 0, nullptr), 0);
  std::string file(size, '\0');
  EXPECT_NE(png_image_write_to_memory(&image, file.data(), &size, 0, bytes, 0, nullptr), 0);
  return file;
}

}  // namespace

RgbImage MakePixels(uint32_t width, uint32_t height) {
  RgbImage image{.size = {width, height}, .pixels = {}};
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      for (const uint32_t value : {x * 37 + y * 11, x * x * 5 + y * 53, x * y * 29 + 7}) {
        image.pixels.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return image;
}

RgbImage MakeFlat(uint32_t width, uint32_t height, uint8_t red, uint8_t green, uint8_t blue) {
  RgbImage image{.size = {width, height}, .pixels = {}};
  for (uint32_t i = 0; i < width * height; ++i) {
    image.pixels.insert(image.pixels.end(), {red, green, blue});
  }
  return image;
}

std::string MakePng(const RgbImage& image) {
  return WritePng(image.size.width, image.size.height, PNG_FORMAT_RGB, image.pixels.data());
}

std::string MakePngOf(uint32_t width, uint32_t height, int channels,
                      const std::vector<uint8_t>& bytes) {
  const uint32_t format = channels == 1   ? PNG_FORMAT_GRAY
                          : channels == 2 ? PNG_FORMAT_GA
                                          : PNG_FORMAT_RGBA;
  return WritePng(width, height, format, bytes.data());
}

std::string MakeJpeg(const RgbImage& image, bool progressive) {
  return CompressJpeg(image.size.width, image.size.height, TJPF_RGB, image.pixels.data(),
                      TJSAMP_444, progressive ? TJFLAG_PROGRESSIVE : 0);
}

std::string MakeCmykJpeg(uint32_t width, uint32_t height, const std::vector<uint8_t>& inks) {
  return CompressJpeg(width, height, TJPF_CMYK, inks.data(), TJSAMP_444, 0);
}

std::string WithPngSize(std::string png, uint32_t width, uint32_t height) {
  // In bytes: signature 8, chunk length 4, "IHDR" 4, chunk data 13 (width 4, height 4, …), CRC 4.
  PutBigEndian(width, png.data() + 16);
  PutBigEndian(height, png.data() + 20);
  const auto* chunk = reinterpret_cast<const unsigned char*>(png.data() + 12);
  PutBigEndian(static_cast<uint32_t>(crc32(0, chunk, 17)), png.data() + 29);
  return png;
}

std::string WithJpegSize(std::string jpeg, uint16_t width, uint16_t height) {
  // In bytes: marker SOF0 (FF C0) 2, length 2, precision 1, height 2, width 2.
  const size_t at = jpeg.find("\xFF\xC0");
  EXPECT_NE(at, jpeg.npos);
  const uint8_t size[] = {static_cast<uint8_t>(height >> 8), static_cast<uint8_t>(height),
                          static_cast<uint8_t>(width >> 8), static_cast<uint8_t>(width)};
  std::memcpy(jpeg.data() + at + 5, size, sizeof size);
  return jpeg;
}

}  // namespace sluice::worker
