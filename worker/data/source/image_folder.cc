// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/data/source/image_decoder.h"

namespace sluice::worker {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  bool is_folder = false;
};

// Returns the entries of a folder, sorted by name and without hidden ones.
absl::StatusOr<std::vector<Entry>> ListFolder(const std::string& path) {
  std::error_code error;
  std::vector<Entry> entries;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.front() == '.') continue;
    std::error_code ignored;
    entries.push_back({std::move(name), entry->is_directory(ignored)});
    if (entries.size() > kMaxImageFiles) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": holds more than ", kMaxImageFiles, " files, which is the limit"));
    }
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be listed: ", error.message()));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

bool HasImageName(absl::string_view name) {
  return absl::EndsWithIgnoreCase(name, ".png") || absl::EndsWithIgnoreCase(name, ".jpg") ||
         absl::EndsWithIgnoreCase(name, ".jpeg");
}

// Finds or adds the label of a class's folder.
absl::StatusOr<uint32_t> LabelOf(const std::string& name, const std::vector<std::string>* known,
                                 ImageFolder* folder) {
  if (known == nullptr) {
    folder->classes.push_back(name);
    return static_cast<uint32_t>(folder->classes.size() - 1);
  }
  const auto found = std::lower_bound(known->begin(), known->end(), name);
  if (found == known->end() || *found != name) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder->path, "/", name, ": the training images have no class with this name"));
  }
  return static_cast<uint32_t>(found - known->begin());
}

absl::Status AddClass(const std::string& name, uint32_t label, ImageFolder* folder) {
  const std::string path = absl::StrCat(folder->path, "/", name);
  absl::StatusOr<std::vector<Entry>> entries = ListFolder(path);
  if (!entries.ok()) return entries.status();
  for (Entry& entry : *entries) {
    if (entry.is_folder || !HasImageName(entry.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, "/", entry.name, ": is ", entry.is_folder ? "a folder" : "not an image",
          "; a class's folder may hold .png, .jpg and .jpeg files only"));
    }
    folder->files.push_back({label, std::move(entry.name)});
  }
  if (entries->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds no images; remove the folder"));
  }
  if (folder->files.size() > kMaxImageFiles) {
    return absl::InvalidArgumentError(absl::StrCat(folder->path, ": holds more than ",
                                                   kMaxImageFiles, " images, which is the limit"));
  }
  return absl::OkStatus();
}

void KeepEvenly(uint32_t limit, std::vector<ImageFolder::File>* files) {
  if (limit == 0 || files->size() <= limit) return;
  for (uint64_t i = 0; i < limit; ++i) {
    const uint64_t from = i * files->size() / limit;
    if (from != i) (*files)[i] = std::move((*files)[from]);
  }
  files->resize(limit);
}

}  // namespace

std::string ImageFolder::PathOf(const File& file) const {
  return absl::StrCat(path, "/", classes[file.label], "/", file.name);
}

absl::StatusOr<ImageFolder> ListImageFolder(const std::string& path,
                                            const std::vector<std::string>* classes,
                                            uint32_t limit) {
  absl::StatusOr<std::vector<Entry>> entries = ListFolder(path);
  if (!entries.ok()) return entries.status();
  ImageFolder folder;
  folder.path = path;
  for (const Entry& entry : *entries) {
    if (!entry.is_folder) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, "/", entry.name, ": is a file, but only folders of classes may be here"));
    }
    const absl::StatusOr<uint32_t> label = LabelOf(entry.name, classes, &folder);
    if (!label.ok()) return label.status();
    if (absl::Status status = AddClass(entry.name, *label, &folder); !status.ok()) return status;
  }
  if (folder.files.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": contains no folders; it needs one folder of images for each class"));
  }
  if (classes != nullptr) folder.classes = *classes;
  KeepEvenly(limit, &folder.files);
  for (const ImageFolder::File& file : folder.files) {
    const absl::StatusOr<ImageSize> size = CheckImageFile(folder.PathOf(file));
    if (!size.ok()) return size.status();
  }
  return folder;
}

}  // namespace sluice::worker
