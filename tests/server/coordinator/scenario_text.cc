// SPDX-License-Identifier: Apache-2.0
#include "tests/server/coordinator/scenario_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace sluice::server {
namespace {

// Splits a line at its spaces, except at those between quotes.
std::vector<std::string> Split(absl::string_view line) {
  std::vector<std::string> words;
  bool quoted = false;
  bool in_word = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      in_word = false;
    } else {
      if (!in_word) words.emplace_back();
      in_word = true;
      words.back() += c;
    }
  }
  EXPECT_FALSE(quoted) << "a quote is missing: " << line;
  return words;
}

uint64_t NumberOf(absl::string_view text, absl::string_view line) {
  uint64_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << "'" << text << "' is not a number: " << line;
  return number;
}

}  // namespace

ScenarioCommand::ScenarioCommand(absl::string_view line) : line_(line) {
  for (const std::string& word : Split(line)) {
    const size_t equal = word.find('=');
    if (name_.empty()) {
      name_ = word;
    } else if (equal == std::string::npos) {
      words_.push_back(word);
    } else {
      values_[word.substr(0, equal)] = {.text = word.substr(equal + 1)};
    }
  }
}

std::string ScenarioCommand::Word(size_t index) const {
  return index < words_.size() ? words_[index] : "";
}

bool ScenarioCommand::HasWord(absl::string_view word) const {
  return std::find(words_.begin(), words_.end(), word) != words_.end();
}

uint64_t ScenarioCommand::NumberAt(size_t index) const { return NumberOf(Word(index), line_); }

const std::string* ScenarioCommand::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  found->second.read = true;
  return &found->second.text;
}

std::string ScenarioCommand::Text(absl::string_view key, absl::string_view otherwise) const {
  const std::string* const text = Find(key);
  return text == nullptr ? std::string(otherwise) : *text;
}

uint64_t ScenarioCommand::Number(absl::string_view key, uint64_t otherwise) const {
  const std::string* const text = Find(key);
  return text == nullptr ? otherwise : NumberOf(*text, line_);
}

double ScenarioCommand::Real(absl::string_view key, double otherwise) const {
  const std::string* const text = Find(key);
  double number = otherwise;
  if (text != nullptr) {
    EXPECT_TRUE(absl::SimpleAtod(*text, &number)) << line_;
  }
  return number;
}

absl::Duration ScenarioCommand::Time(absl::string_view key, absl::Duration otherwise) const {
  const std::string* const text = Find(key);
  absl::Duration time = otherwise;
  if (text != nullptr) {
    EXPECT_TRUE(absl::ParseDuration(*text, &time)) << line_;
  }
  return time;
}

std::vector<uint64_t> ScenarioCommand::Numbers(absl::string_view key) const {
  const std::string* const text = Find(key);
  if (text == nullptr || text->empty()) return {};
  std::vector<uint64_t> numbers;
  for (const absl::string_view number : absl::StrSplit(*text, ',')) {
    numbers.push_back(NumberOf(number, line_));
  }
  return numbers;
}

bool ScenarioCommand::Has(absl::string_view key) const { return Find(key) != nullptr; }

std::string ScenarioCommand::UnknownKey() const {
  for (const auto& [key, value] : values_) {
    if (!value.read) return key;
  }
  return "";
}

}  // namespace sluice::server
