// SPDX-License-Identifier: Apache-2.0
// Image decoder: decodes PNG and JPEG files to RGB pixels, with libpng and libjpeg-turbo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::worker {

inline constexpr uint64_t kMaxImageFileBytes = uint64_t{1} << 28;
inline constexpr uint64_t kMaxPixels = uint64_t{1} << 27;

struct ImageSize {
  uint32_t width = 0;
  uint32_t height = 0;
};

struct RgbImage {
  ImageSize size;
  std::vector<uint8_t> pixels;  // Row by row; red, green and blue of each pixel.
};

// All errors begin with `name`. A file's first bytes determine its format; its name does not
// matter.
//
// ReadImageHeader returns the size in the header, which must be in `start`, the file's first bytes.
// Fails with INVALID_ARGUMENT if the file is neither PNG nor JPEG, or the image has more than
// kMaxPixels or more pixels than a file of `file_bytes` can hold. Fails with DATA_LOSS if the file
// is empty, or its header is damaged or incomplete.
absl::StatusOr<ImageSize> ReadImageHeader(absl::string_view start, uint64_t file_bytes,
                                          absl::string_view name);

// Decodes an image to RGB. Gray images get three equal colors, transparent pixels become black, and
// CMYK is converted. Errors are as above, and DATA_LOSS if the file is damaged or truncated.
// Allocates memory by the header's size only if the file can hold that many pixels.
absl::StatusOr<RgbImage> DecodeImage(absl::string_view bytes, absl::string_view name);

// Opens the file and reads its header.
absl::StatusOr<ImageSize> CheckImageFile(const std::string& path);
absl::StatusOr<RgbImage> DecodeImageFile(const std::string& path);

}  // namespace sluice::worker
