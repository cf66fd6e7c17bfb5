// SPDX-License-Identifier: Apache-2.0
#include "cli/explain.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "job/file/explanation.h"
#include "nlohmann/json.hpp"

namespace sluice::cli {
namespace {

constexpr size_t kWidth = 100;  // Columns of a line, at most.

// Returns `text` in lines of at most kWidth columns, each indented by `indent`.
std::string Wrapped(absl::string_view text, size_t indent) {
  std::string lines;
  size_t column = kWidth;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const bool fits = column + 1 + word.size() <= kWidth;
    if (!fits) absl::StrAppend(&lines, lines.empty() ? "" : "\n", std::string(indent, ' '));
    absl::StrAppend(&lines, fits ? " " : "", word);
    column = (fits ? column + 1 : indent) + word.size();
  }
  return lines + "\n";
}

// Both names of a type: for programs, and for the text that people read.
struct TypeNames {
  absl::string_view word, phrase;
};

TypeNames NamesOfType(job::KeyType type) {
  switch (type) {
    case job::KeyType::kSection:
      return {"section", "section"};
    case job::KeyType::kBoolean:
      return {"boolean", "true or false"};
    case job::KeyType::kWhole:
      return {"integer", "whole number"};
    case job::KeyType::kNumber:
      return {"number", "number"};
    case job::KeyType::kText:
      return {"string", "text"};
    case job::KeyType::kBytes:
      return {"bytes", "bytes, such as 262144 or 256KiB"};
    case job::KeyType::kSeconds:
      return {"duration", "duration, such as 10s or 500ms"};
    case job::KeyType::kCodec:
      return {"codec", "codec, such as topk:1%+int4"};
  }
  return {};
}

std::vector<std::string> Facts(const job::KeyExplanation& key) {
  std::vector<std::string> facts;
  // A list of words says more than "text".
  if (key.words.empty() || key.is_list) {
    facts.push_back(absl::StrCat("type: ", key.is_list ? "list; each entry: " : "",
                                 NamesOfType(key.type).phrase));
  }
  if (key.default_text == "required") {
    facts.push_back("required");
  } else if (!key.default_text.empty()) {
    facts.push_back(absl::StrCat("default: ", PlainText(key.default_text)));
  }
  if (!key.limits.empty()) facts.push_back(absl::StrCat("range: ", PlainText(key.limits)));
  if (!key.words.empty()) {
    facts.push_back(absl::StrCat("one of: ", absl::StrJoin(key.words, ", ")));
  }
  if (!key.taken_by.empty()) {
    facts.push_back(absl::StrCat("only with: ", absl::StrJoin(key.taken_by, ", ")));
  }
  return facts;
}

absl::Status AddSection(absl::string_view path, nlohmann::ordered_json* sections) {
  const absl::StatusOr<std::vector<job::KeyExplanation>> keys = job::ExplainKeysOf(path);
  if (!keys.ok()) return keys.status();
  nlohmann::ordered_json& section = (*sections)[std::string(path)];
  section = nlohmann::ordered_json::array();
  for (const job::KeyExplanation& key : *keys) {
    section.push_back({{"key", key.path},
                       {"meaning", key.meaning},
                       {"type", NamesOfType(key.type).word},
                       {"list", key.is_list},
                       {"words", key.words},
                       {"taken_by", key.taken_by},
                       {"default", key.default_text},
                       {"range", key.limits}});
  }
  for (const job::KeyExplanation& key : *keys) {
    if (key.type != job::KeyType::kSection) continue;
    if (const absl::Status added = AddSection(key.path, sections); !added.ok()) return added;
  }
  return absl::OkStatus();
}

}  // namespace

std::string PlainText(absl::string_view markdown) {
  std::string plain;
  for (size_t i = 0; i < markdown.size(); ++i) {
    if (markdown[i] == '`' || markdown[i] == '[') continue;
    if (markdown.substr(i, 2) == "](") {
      i = std::min(markdown.find(')', i), markdown.size());
      continue;
    }
    plain += markdown[i];
  }
  return plain;
}

absl::StatusOr<std::string> FormatKey(absl::string_view path) {
  const absl::StatusOr<job::KeyExplanation> key = job::ExplainKey(path);
  if (!key.ok()) return key.status();
  std::string text;
  if (!key->path.empty()) {
    absl::StrAppend(&text, key->path, "\n", Wrapped(PlainText(key->meaning), 2));
    for (const std::string& fact : Facts(*key)) absl::StrAppend(&text, Wrapped(fact, 2));
  }
  if (key->type != job::KeyType::kSection) return text;
  const absl::StatusOr<std::vector<job::KeyExplanation>> keys = job::ExplainKeysOf(path);
  if (!keys.ok()) return keys.status();
  size_t widest = 0;
  for (const job::KeyExplanation& each : *keys) widest = std::max(widest, each.path.size());
  absl::StrAppend(&text, text.empty() ? "" : "\n");
  for (const job::KeyExplanation& each : *keys) {
    const std::string meaning = Wrapped(PlainText(each.meaning), widest + 4);
    absl::StrAppend(&text, absl::StrFormat("  %-*s  ", static_cast<int>(widest), each.path),
                    absl::string_view(meaning).substr(std::min(meaning.size(), widest + 4)));
  }
  return text;
}

absl::StatusOr<std::string> KeysJson(absl::string_view path) {
  nlohmann::ordered_json sections = nlohmann::ordered_json::object();
  if (const absl::Status added = AddSection(path, &sections); !added.ok()) return added;
  return sections.dump(2) + "\n";
}

}  // namespace sluice::cli
