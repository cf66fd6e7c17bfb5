// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/image_decoder.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/data/source/data_file.h"

namespace sluice::worker {
namespace {

// Enough for most headers; some cameras write longer ones.
constexpr uint64_t kHeaderBytes = uint64_t{1} << 16;
// One byte of Deflate expands to at most 1,032 bytes of 8 black-and-white pixels each. One byte of
// JPEG expands to at most 512 pixels.
constexpr uint64_t kPixelsPerByteMax = uint64_t{1032} * 8;

enum class Format { kPng, kJpeg };

struct DestroyTurbo {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using TurboHandle = std::unique_ptr<void, DestroyTurbo>;

struct FreePng {
  void operator()(png_image* image) const { png_image_free(image); }
};

absl::Status Damaged(absl::string_view name, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(name, ": damaged or truncated (", what, "); fetch the file again"));
}

absl::StatusOr<Format> FormatOf(absl::string_view bytes, absl::string_view name) {
  if (bytes.empty()) return absl::DataLossError(absl::StrCat(name, ": is empty"));
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1A\n")) return Format::kPng;
  if (absl::StartsWith(bytes, "\xFF\xD8\xFF")) return Format::kJpeg;
  std::string start;
  for (const char c : bytes.substr(0, 4)) {
    absl::StrAppend(&start, absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": is neither PNG nor JPEG: it starts with 0x", start));
}

absl::Status CheckSize(ImageSize size, uint64_t file_bytes, absl::string_view name) {
  const uint64_t pixels = uint64_t{size.width} * size.height;
  if (pixels == 0) return Damaged(name, "an image without pixels");
  const std::string says =
      absl::StrCat("its header says ", size.width, " × ", size.height, " pixels");
  if (pixels > kMaxPixels) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", says, "; the limit is ", kMaxPixels, " in all"));
  }
  if (pixels / kPixelsPerByteMax > file_bytes) {
    return Damaged(name, absl::StrCat(says, ", which ", file_bytes, " bytes cannot hold"));
  }
  return absl::OkStatus();
}

// A PNG file whose header has been read. It reads pixels as RGB.
class PngReader {
 public:
  absl::Status Open(absl::string_view bytes, absl::string_view name) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size()) == 0) {
      return Damaged(name, image_.message);
    }
    image_.format = PNG_FORMAT_RGB;
    return absl::OkStatus();
  }
  ImageSize size() const { return {image_.width, image_.height}; }
  absl::Status Read(absl::string_view name, uint8_t* pixels) {
    const png_color black = {0, 0, 0};
    if (png_image_finish_read(&image_, &black, pixels, 0, nullptr) == 0) {
      return Damaged(name, image_.message);
    }
    return absl::OkStatus();
  }

 private:
  png_image image_{};
  const std::unique_ptr<png_image, FreePng> free_{&image_};
};

class JpegReader {
 public:
  absl::Status Open(absl::string_view bytes, absl::string_view name) {
    bytes_ = bytes;
    if (handle_ == nullptr) return absl::ResourceExhaustedError("libjpeg-turbo is out of memory");
    int subsampling = 0;
    if (tjDecompressHeader3(handle_.get(), data(), bytes.size(), &width_, &height_, &subsampling,
                            &colors_) != 0) {
      return Damaged(name, tjGetErrorStr2(handle_.get()));
    }
    return absl::OkStatus();
  }
  ImageSize size() const {
    return {static_cast<uint32_t>(std::max(width_, 0)),
            static_cast<uint32_t>(std::max(height_, 0))};
  }
  absl::Status Read(absl::string_view name, uint8_t* pixels) {
    if (colors_ != TJCS_CMYK && colors_ != TJCS_YCCK) return Decompress(name, TJPF_RGB, pixels);
    std::vector<uint8_t> inks(uint64_t{size().width} * size().height * 4);
    if (absl::Status status = Decompress(name, TJPF_CMYK, inks.data()); !status.ok()) return status;
    // By convention, 255 means no ink.
    for (size_t i = 0; i < inks.size(); i += 4) {
      for (size_t c = 0; c < 3; ++c) {
        *pixels++ = static_cast<uint8_t>((inks[i + c] * inks[i + 3] + 127) / 255);
      }
    }
    return absl::OkStatus();
  }

 private:
  const unsigned char* data() const {
    return reinterpret_cast<const unsigned char*>(bytes_.data());
  }
  absl::Status Decompress(absl::string_view name, int format, uint8_t* pixels) {
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;
    if (tjDecompress2(handle_.get(), data(), bytes_.size(), pixels, width_, /*pitch=*/0, height_,
                      format, flags) == 0) {
      return absl::OkStatus();
    }
    const absl::string_view why = tjGetErrorStr2(handle_.get());
    // Many programs leave extra bytes between an image's parts, which is harmless. The library's
    // error code does not distinguish this warning from an error, because the code stays set when
    // an error follows. But an error replaces the message.
    if (absl::StrContains(why, "extraneous bytes before marker")) return absl::OkStatus();
    return Damaged(name, why);
  }

  const TurboHandle handle_{tjInitDecompress()};
  absl::string_view bytes_;
  int width_ = 0;
  int height_ = 0;
  int colors_ = 0;
};

template <typename Reader>
absl::StatusOr<ImageSize> HeaderOf(absl::string_view start, uint64_t file_bytes,
                                   absl::string_view name) {
  Reader reader;
  if (absl::Status status = reader.Open(start, name); !status.ok()) return status;
  if (absl::Status status = CheckSize(reader.size(), file_bytes, name); !status.ok()) return status;
  return reader.size();
}

template <typename Reader>
absl::StatusOr<RgbImage> Decode(absl::string_view bytes, absl::string_view name) {
  Reader reader;
  if (absl::Status status = reader.Open(bytes, name); !status.ok()) return status;
  RgbImage image;
  image.size = reader.size();
  absl::Status status = CheckSize(image.size, bytes.size(), name);
  if (!status.ok()) return status;
  image.pixels.resize(uint64_t{image.size.width} * image.size.height * 3);
  status = reader.Read(name, image.pixels.data());
  if (!status.ok()) return status;
  return image;
}

}  // namespace

absl::StatusOr<ImageSize> ReadImageHeader(absl::string_view start, uint64_t file_bytes,
                                          absl::string_view name) {
  const absl::StatusOr<Format> format = FormatOf(start, name);
  if (!format.ok()) return format.status();
  return *format == Format::kPng ? HeaderOf<PngReader>(start, file_bytes, name)
                                 : HeaderOf<JpegReader>(start, file_bytes, name);
}

absl::StatusOr<RgbImage> DecodeImage(absl::string_view bytes, absl::string_view name) {
  const absl::StatusOr<Format> format = FormatOf(bytes, name);
  if (!format.ok()) return format.status();
  return *format == Format::kPng ? Decode<PngReader>(bytes, name) : Decode<JpegReader>(bytes, name);
}

absl::StatusOr<ImageSize> CheckImageFile(const std::string& path) {
  const absl::StatusOr<uint64_t> file_bytes = DataFileBytes(path);
  if (!file_bytes.ok()) return file_bytes.status();
  absl::StatusOr<std::string> start = ReadDataStart(path, kHeaderBytes);
  if (!start.ok()) return start.status();
  absl::StatusOr<ImageSize> size = ReadImageHeader(*start, *file_bytes, path);
  if (!absl::IsDataLoss(size.status()) || start->size() == *file_bytes) return size;
  start = ReadDataFile(path, kMaxImageFileBytes);
  if (!start.ok()) return start.status();
  return ReadImageHeader(*start, *file_bytes, path);
}

absl::StatusOr<RgbImage> DecodeImageFile(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadDataFile(path, kMaxImageFileBytes);
  if (!bytes.ok()) return bytes.status();
  return DecodeImage(*bytes, path);
}

}  // namespace sluice::worker
