// SPDX-License-Identifier: Apache-2.0
// Generated image files for tests, and their pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/source/image_decoder.h"

namespace sluice::worker {

// Makes an image from a formula. Colors vary from pixel to pixel.
RgbImage MakePixels(uint32_t width, uint32_t height);
// Makes an image of a single color.
RgbImage MakeFlat(uint32_t width, uint32_t height, uint8_t red, uint8_t green, uint8_t blue);

std::string MakePng(const RgbImage& image);
// `channels`: 1 is gray, 2 is gray and alpha, 4 is red, green, blue and alpha.
std::string MakePngOf(uint32_t width, uint32_t height, int channels,
                      const std::vector<uint8_t>& bytes);
// Makes a nearly lossless JPEG file.
std::string MakeJpeg(const RgbImage& image, bool progressive = false);
// `inks` holds values as stored in files, where 255 means no ink.
std::string MakeCmykJpeg(uint32_t width, uint32_t height, const std::vector<uint8_t>& inks);

// Replaces the size in a PNG file's header with `width` × `height` and updates the checksum.
std::string WithPngSize(std::string png, uint32_t width, uint32_t height);
// Like WithPngSize, for a JPEG file.
std::string WithJpegSize(std::string jpeg, uint16_t width, uint16_t height);

}  // namespace sluice::worker
