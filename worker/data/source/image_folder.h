// ImageFolder: the files of a folder that has a folder of images for each class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::worker {

inline constexpr uint32_t kMaxImageFiles = 1 << 25;

struct ImageFolder {
  struct File {
    uint32_t label = 0;  // Index of `classes`.
    std::string name;    // Below the class's folder.
  };
  std::string path;
  std::vector<std::string> classes;  // In the order of their bytes.
  std::vector<File> files;           // By class, then by name.

  std::string PathOf(const File& file) const;
};

// Lists `path`/CLASS/FILE and reads each file's header; of more than `limit` files (0: all) as
// many, evenly spread. What begins with a dot is passed over. `classes` (may be null) are those of
// the training images: labels are theirs, and a folder of another name is an error. Errors name the
// folder or file. NOT_FOUND: no such folder. INVALID_ARGUMENT: no class, a class without images,
// something else than .png, .jpg or .jpeg (of any case) among them, too many; and those of
// CheckImageFile.
absl::StatusOr<ImageFolder> ListImageFolder(const std::string& path,
                                            const std::vector<std::string>* classes,
                                            uint32_t limit);

}  // namespace sluice::worker
