// SPDX-License-Identifier: Apache-2.0
// The words of a scenario's commands; scenario_run.h describes the scenarios.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::server {

// One command: its name, then words and `key=value` pairs in any order. Quotes join words:
// `error="no space left"`.
class ScenarioCommand {
 public:
  explicit ScenarioCommand(absl::string_view line);

  const std::string& name() const { return name_; }
  size_t words() const { return words_.size(); }
  // Returns a word after the name, counted from 0. Returns an empty text if there is none.
  std::string Word(size_t index) const;
  bool HasWord(absl::string_view word) const;
  uint64_t NumberAt(size_t index) const;

  // These return the value of a key, or the default if the command does not have the key. A value
  // of the wrong kind is a test failure.
  std::string Text(absl::string_view key, absl::string_view otherwise = "") const;
  uint64_t Number(absl::string_view key, uint64_t otherwise) const;
  double Real(absl::string_view key, double otherwise) const;
  absl::Duration Time(absl::string_view key, absl::Duration otherwise) const;
  std::vector<uint64_t> Numbers(absl::string_view key) const;
  bool Has(absl::string_view key) const;

  // Returns a key that nothing has read. Empty if there is none.
  std::string UnknownKey() const;

 private:
  struct Value {
    std::string text;
    mutable bool read = false;
  };

  const std::string* Find(absl::string_view key) const;

  std::string line_;
  std::string name_;
  std::vector<std::string> words_;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace sluice::server
