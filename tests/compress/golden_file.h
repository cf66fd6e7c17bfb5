// SPDX-License-Identifier: Apache-2.0
// Reads files of golden frames. A file has lines `key hex...` with these keys: spec, threshold,
// gradient and decoded (fp32 values of 8 hex digits each), rows (of a matrix; in decimal), before
// (the gradient of the previous frame, for codecs that depend on it), and frame (bytes as on the
// wire). A line that begins with a space continues the previous line.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace sluice::compress {

inline std::map<std::string, std::string> ReadGolden(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::map<std::string, std::string> entries;
  std::string line, key;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != ' ') {
      const size_t space = std::min(line.find(' '), line.size());
      key = line.substr(0, space);
      line = line.substr(space);
    }
    entries[key] += line;
  }
  return entries;
}

// Returns the bit patterns in `text`: hexadecimal numbers, of which pattern*n stands for n equal
// ones.
inline std::vector<uint32_t> BitPatterns(const std::string& text) {
  std::vector<uint32_t> patterns;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits('*', 1));
    uint32_t bits = 0;
    size_t count = 1;
    EXPECT_TRUE(absl::SimpleHexAtoi(parts.first, &bits)) << std::string(word);
    EXPECT_TRUE(parts.second.empty() || absl::SimpleAtoi(parts.second, &count));
    patterns.insert(patterns.end(), count, bits);
  }
  return patterns;
}

inline std::vector<float> Floats(const std::string& text) {
  std::vector<float> values;
  for (const uint32_t bits : BitPatterns(text)) values.push_back(std::bit_cast<float>(bits));
  return values;
}

}  // namespace sluice::compress
