// SPDX-License-Identifier: Apache-2.0
// record of CIFAR-10  := label pixels        of CIFAR-100 := coarse-label fine-label pixels
// pixels := red[32][32] green[32][32] blue[32][32], a byte each
#include "worker/data/source/cifar_files.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "worker/data/source/data_file.h"

namespace sluice::worker {
namespace {

constexpr uint32_t kCifarFilesSide = 32;
constexpr uint32_t kChannels = 3;
constexpr uint32_t kPixelBytes = kCifarFilesSide * kCifarFilesSide * kChannels;

struct Layout {
  uint32_t label_bytes;
  uint32_t label_at;
  uint32_t classes;
  const char* name;

  uint32_t record_bytes() const { return label_bytes + kPixelBytes; }
};

Layout LayoutOf(CifarLabels labels) {
  switch (labels) {
    case CifarLabels::kTen:
      return {1, 0, 10, "CIFAR-10"};
    case CifarLabels::kHundredCoarse:
      return {2, 0, 20, "CIFAR-100 (coarse labels)"};
    default:
      return {2, 1, 100, "CIFAR-100"};
  }
}

absl::StatusOr<uint64_t> CountRecords(const std::string& path, const Layout& layout) {
  const absl::StatusOr<uint64_t> bytes = DataFileBytes(path);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(absl::StrCat(bytes.status().message(),
                                            "; data.path names the folder with the files of ",
                                            layout.name, "'s binary version"));
  }
  if (!bytes.ok()) return bytes.status();
  if (*bytes == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  if (*bytes % layout.record_bytes() != 0) {
    return absl::DataLossError(absl::StrCat(
        path, ": its ", *bytes, " bytes are not a whole number of ", layout.name,
        "'s records, which have ", layout.record_bytes(), ": truncated, or of another data set"));
  }
  return *bytes / layout.record_bytes();
}

// Appends the file's first `count` records.
absl::Status AppendRecords(const std::string& path, const Layout& layout, uint64_t count,
                           LabelledImages* images) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> record(layout.record_bytes());
  for (uint64_t i = 0; i < count; ++i) {
    if (!file.read(record.data(), static_cast<std::streamsize>(record.size()))) {
      return absl::DataLossError(
          absl::StrCat(path, ": cannot be read beyond its first ", i, " images"));
    }
    const auto label = static_cast<uint8_t>(record[layout.label_at]);
    if (label >= layout.classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": label ", label, " of image ", i, " is out of range: the classes of ",
          layout.name, " are 0 to ", layout.classes - 1, "; is this a file of another data set?"));
    }
    images->labels.push_back(label);
    images->pixels.insert(images->pixels.end(), record.begin() + layout.label_bytes, record.end());
  }
  images->count += static_cast<uint32_t>(count);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LabelledImages> ReadCifarFiles(const std::vector<std::string>& paths,
                                              CifarLabels labels, uint32_t published,
                                              uint32_t limit) {
  const Layout layout = LayoutOf(labels);
  uint64_t first_count = 0;
  for (const std::string& path : paths) {
    const absl::StatusOr<uint64_t> count = CountRecords(path, layout);
    if (!count.ok()) return count.status();
    if (first_count == 0) first_count = *count;
    if (*count != first_count) {
      return absl::DataLossError(absl::StrCat(path, ": holds ", *count, " images where ",
                                              paths.front(), " holds ", first_count,
                                              ": one of the two is truncated"));
    }
    if (limit == 0 && *count < published) {
      return absl::DataLossError(absl::StrCat(
          path, ": holds ", *count, " images where ", layout.name, "'s has ", published,
          ": truncated; if it is short on purpose, set the number of images to use (data.limit, "
          "data.test_limit)"));
    }
  }
  const uint64_t available = first_count * paths.size();
  const uint64_t wanted = limit == 0 ? available : std::min<uint64_t>(limit, available);
  if (wanted > kMaxImageBytes / kPixelBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths.front(), ": together with the other files, ", wanted,
                     " images exceed the limit of ", kMaxImageBytes, " bytes; set data.limit"));
  }
  LabelledImages images;
  images.channels = kChannels;
  images.height = kCifarFilesSide;
  images.width = kCifarFilesSide;
  images.classes = layout.classes;
  images.pixels.reserve(wanted * kPixelBytes);
  images.labels.reserve(wanted);
  for (const std::string& path : paths) {
    const uint64_t count = std::min<uint64_t>(first_count, wanted - images.count);
    if (absl::Status status = AppendRecords(path, layout, count, &images); !status.ok()) {
      return status;
    }
  }
  return images;
}

}  // namespace sluice::worker
