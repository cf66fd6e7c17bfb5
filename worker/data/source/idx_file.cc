// SPDX-License-Identifier: Apache-2.0
// idx := 0 0 type dimensions size{dimensions} item...    sizes: 32 bits, big-endian; type 8:
// unsigned bytes
#include "worker/data/source/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "worker/data/source/data_file.h"

namespace sluice::worker {
namespace {

constexpr uint8_t kUnsignedByte = 8;
constexpr uint64_t kInflateAtOnce = uint64_t{1} << 24;

struct CloseGz {
  void operator()(gzFile_s* file) const { gzclose(file); }
};
using GzFile = std::unique_ptr<gzFile_s, CloseGz>;  // Also reads files that are not compressed.

absl::Status Invalid(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status Truncated(const std::string& path, uint64_t wanted, uint64_t got) {
  return absl::DataLossError(absl::StrCat(path, ": truncated: ", wanted,
                                          " more bytes are expected here, but only ", got,
                                          " follow; fetch the file again"));
}

// Appends `count` bytes to `*out`, which grows as data is read, so that a wrong header cannot cause
// a huge allocation.
absl::Status ReadBytes(gzFile_s* file, const std::string& path, uint64_t count,
                       std::vector<uint8_t>* out) {
  uint64_t done = 0;
  while (done < count) {
    const auto part = static_cast<unsigned>(std::min(kInflateAtOnce, count - done));
    const size_t at = out->size();
    out->resize(at + part);
    const int got = gzread(file, out->data() + at, part);
    int code = Z_OK;
    const char* why = gzerror(file, &code);
    done += static_cast<uint64_t>(std::max(got, 0));
    const bool ended = got >= 0 && static_cast<unsigned>(got) < part;
    if (code == Z_BUF_ERROR || (code == Z_OK && ended)) return Truncated(path, count, done);
    if (got < 0 || code != Z_OK) {
      return absl::DataLossError(
          absl::StrCat(path, ": cannot be read: ", code == Z_ERRNO ? std::strerror(errno) : why));
    }
  }
  return absl::OkStatus();
}

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

absl::Status CheckMagic(const std::string& path, absl::Span<const uint8_t> magic,
                        uint32_t dimensions) {
  if (magic[0] != 0 || magic[1] != 0) {
    return Invalid(path, absl::StrCat("not an idx file: it starts with 0x",
                                      absl::Hex(BigEndian(magic.data()), absl::kZeroPad8),
                                      " where 0x0000080", dimensions, " is expected"));
  }
  if (magic[2] != kUnsignedByte) {
    return Invalid(path, absl::StrCat("an idx file of element type ", magic[2],
                                      ": only unsigned bytes (type 8) are read"));
  }
  if (magic[3] != dimensions) {
    return Invalid(path, absl::StrCat("an idx file with ", magic[3], " dimensions where ",
                                      dimensions, dimensions == 1 ? " (labels)" : " (images)",
                                      dimensions == 1 ? " is" : " are",
                                      " expected: are the images and labels mixed up?"));
  }
  return absl::OkStatus();
}

// Reads the sizes of all dimensions into `shape` and returns the number of bytes of one item.
absl::StatusOr<uint64_t> ReadShape(gzFile_s* file, const std::string& path, uint32_t dimensions,
                                   std::vector<uint32_t>* shape) {
  std::vector<uint8_t> sizes;
  if (absl::Status status = ReadBytes(file, path, uint64_t{dimensions} * 4, &sizes); !status.ok()) {
    return status;
  }
  uint64_t item = 1;
  uint64_t total = 1;
  for (uint32_t d = 0; d < dimensions; ++d) {
    const uint32_t size = BigEndian(sizes.data() + size_t{d} * 4);
    shape->push_back(size);
    if (size == 0) return Invalid(path, absl::StrCat("is empty: dimension ", d, " is 0"));
    if (total > kMaxImageBytes / size) {
      return Invalid(path, absl::StrCat("its header declares more than ", kMaxImageBytes,
                                        " bytes, which is the limit"));
    }
    total *= size;
    if (d > 0) item *= size;
  }
  return item;
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, uint32_t dimensions, uint32_t limit) {
  // zlib would wait for the writer of a named pipe.
  if (absl::StatusOr<uint64_t> bytes = DataFileBytes(path); !bytes.ok()) return bytes.status();
  const GzFile file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  std::vector<uint8_t> magic;
  if (absl::Status status = ReadBytes(file.get(), path, 4, &magic); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckMagic(path, magic, dimensions); !status.ok()) return status;
  IdxArray array;
  absl::StatusOr<uint64_t> item = ReadShape(file.get(), path, dimensions, &array.shape);
  if (!item.ok()) return item.status();
  const bool whole = limit == 0 || limit >= array.shape[0];
  if (!whole) array.shape[0] = limit;
  absl::Status status = ReadBytes(file.get(), path, *item * array.shape[0], &array.bytes);
  if (!status.ok()) return status;
  if (uint8_t more = 0; whole && gzread(file.get(), &more, 1) == 1) {
    return absl::DataLossError(
        absl::StrCat(path, ": longer than its header says; fetch the file again"));
  }
  return array;
}

absl::StatusOr<LabelledImages> ReadIdxImages(const std::string& images_path,
                                             const std::string& labels_path, uint32_t limit) {
  absl::StatusOr<IdxArray> images = ReadIdxFile(images_path, 3, limit);
  if (!images.ok()) return images.status();
  absl::StatusOr<IdxArray> labels = ReadIdxFile(labels_path, 1, limit);
  if (!labels.ok()) return labels.status();
  if (images->shape[0] != labels->shape[0]) {
    return Invalid(labels_path, absl::StrCat(labels->shape[0], " labels do not match the ",
                                             images->shape[0], " images of ", images_path));
  }
  for (size_t i = 0; i < labels->bytes.size(); ++i) {
    if (labels->bytes[i] >= kIdxClasses) {
      return Invalid(labels_path,
                     absl::StrCat("label ", labels->bytes[i], " of sample ", i,
                                  " is out of range: classes are 0 to ", kIdxClasses - 1));
    }
  }
  LabelledImages set;
  set.count = images->shape[0];
  set.height = images->shape[1];
  set.width = images->shape[2];
  set.classes = kIdxClasses;
  set.pixels = std::move(images->bytes);
  set.labels = std::move(labels->bytes);
  return set;
}

}  // namespace sluice::worker
