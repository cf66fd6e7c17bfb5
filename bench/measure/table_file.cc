// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/table_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice::bench {
namespace {

constexpr size_t kShownMax = 40;  // Messages quote this many characters of a wrong word.

std::string Quoted(absl::string_view word) {
  return absl::StrCat("\"", absl::CHexEscape(word.substr(0, kShownMax)), "\"");
}

}  // namespace

absl::StatusOr<protocol::TensorTable> ParseTensorTable(absl::string_view text) {
  protocol::TensorTable table;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view content = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(content, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    protocol::TensorInfo& tensor = table.emplace_back();
    tensor.name = std::string(words[0]);
    for (size_t i = 1; i < words.size(); ++i) {
      int64_t size = 0;
      if (!absl::SimpleAtoi(words[i], &size) || size < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor table: line ", number, ": ", Quoted(words[i]),
                         " is not a dimension; a line is a name and integers of at least 1, as in "
                         "`fc1.weight 256 784`"));
      }
      tensor.shape.push_back(size);
    }
  }
  const absl::Status valid = protocol::ValidateTensorTable(table);
  if (!valid.ok()) {
    return table.empty() ? absl::InvalidArgumentError("tensor table: it names no tensor") : valid;
  }
  return table;
}

absl::StatusOr<protocol::TensorTable> ReadTensorTable(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  std::ostringstream text;
  text << file.rdbuf();  // Empty if the path can be opened but not read, like a folder.
  absl::StatusOr<protocol::TensorTable> table = ParseTensorTable(text.str());
  if (table.ok()) return table;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", table.status().message()));
}

}  // namespace sluice::bench
