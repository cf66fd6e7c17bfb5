// SPDX-License-Identifier: Apache-2.0
// ImageFolder: a list of the images in a folder with one subfolder for each class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::worker {

inline constexpr uint32_t kMaxImageFiles = 1 << 25;

struct ImageFolder {
  struct File {
    uint32_t label = 0;  // Index into `classes`.
    std::string name;    // Relative to the class's folder.
  };
  std::string path;
  std::vector<std::string> classes;  // In byte order.
  std::vector<File> files;           // By class, then by name.

  std::string PathOf(const File& file) const;
};

// Lists `path`/CLASS/FILE. If there are more than `limit` files (0 means no limit), lists `limit`
// of them, evenly spaced. Reads the header of each listed file. Ignores names that begin with a
// dot. `classes` (may be null) are the classes of the training images: labels refer to them, and a
// folder with another name is an error. Errors name the folder or file. Fails with NOT_FOUND if the
// folder does not exist. Fails with INVALID_ARGUMENT if there is no class, a class has no images, a
// file is not .png, .jpg or .jpeg (in any case), or there are too many files. Also returns the
// errors of CheckImageFile.
absl::StatusOr<ImageFolder> ListImageFolder(const std::string& path,
                                            const std::vector<std::string>* classes,
                                            uint32_t limit);

}  // namespace sluice::worker
