// Image files made for tests, and what is in them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/source/image_decoder.h"

namespace sluice::worker {

// Of a formula: colours change from pixel to pixel.
RgbImage MakePixels(uint32_t width, uint32_t height);
// One colour.
RgbImage MakeFlat(uint32_t width, uint32_t height, uint8_t red, uint8_t green, uint8_t blue);

std::string MakePng(const RgbImage& image);
// `channels`: 1 grey, 2 grey and alpha, 4 red, green, blue and alpha.
std::string MakePngOf(uint32_t width, uint32_t height, int channels,
                      const std::vector<uint8_t>& bytes);
// Nearly without loss.
std::string MakeJpeg(const RgbImage& image, bool progressive = false);
// Inks as they are in files: 255 is none.
std::string MakeCmykJpeg(uint32_t width, uint32_t height, const std::vector<uint8_t>& inks);

// With `width` × `height` in the header of a PNG file in place of its own, and the right checksum.
std::string WithPngSize(std::string png, uint32_t width, uint32_t height);
// The same for a JPEG file.
std::string WithJpegSize(std::string jpeg, uint16_t width, uint16_t height);

}  // namespace sluice::worker
