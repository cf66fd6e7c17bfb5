// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/contents.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"

namespace sluice::cli {

void BundleContents::Miss(const std::string& what, const std::string& why) {
  missing_.push_back(EscapeControls(absl::StrCat(what, ": ", why)));
}

std::vector<BundleContents::Entry> BundleContents::Files() const {
  std::vector<Entry> files = files_;
  files.push_back({"missing.txt", missing_.empty()
                                      ? "Everything that was asked for is here.\n"
                                      : absl::StrCat(absl::StrJoin(missing_, "\n"), "\n")});
  for (Entry& file : files) file.text = secrets_.RemoveFrom(std::move(file.text));
  return files;
}

}  // namespace sluice::cli
