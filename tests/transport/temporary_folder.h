// A folder for one test's files.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(absl::StrCat(::testing::TempDir(), "/transport_XXXXXX")) {
    Check(::mkdtemp(path_.data()) != nullptr, "there is a folder for tests");
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  // Returns its path. In the place of the one before in one move.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = Path(name);
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
    return path;
  }

 private:
  std::string path_;
};

}  // namespace sluice
