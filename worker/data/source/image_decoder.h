// Image decoder: PNG and JPEG files as pixels in three colours, by libpng and libjpeg-turbo.
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

// All errors begin with `name`. Which of the two formats it is tell its first bytes, not its name.
//
// The size that the header in a file's first bytes, `start`, gives. INVALID_ARGUMENT: neither PNG
// nor JPEG; over kMaxPixels, or over what a file of `file_bytes` can hold. DATA_LOSS: empty, or the
// header is broken or not all there.
absl::StatusOr<ImageSize> ReadImageHeader(absl::string_view start, uint64_t file_bytes,
                                          absl::string_view name);

// Grey images get three equal colours; what is transparent shows black; CMYK becomes RGB. Errors as
// above, and DATA_LOSS: damaged or truncated. Takes memory by the header's size only where the file
// can hold so many pixels.
absl::StatusOr<RgbImage> DecodeImage(absl::string_view bytes, absl::string_view name);

// Opens the file and reads its header.
absl::StatusOr<ImageSize> CheckImageFile(const std::string& path);
absl::StatusOr<RgbImage> DecodeImageFile(const std::string& path);

}  // namespace sluice::worker
