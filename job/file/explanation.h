// SPDX-License-Identifier: Apache-2.0
// Describes the keys of a job file from the schema's options: meaning, default and limits. `sluice
// explain` prints the descriptions, and the tables of docs/job-file.md are made from them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/file/key_type.h"

namespace sluice::job {

// `meaning`, `default_text` and `limits` may contain `code` and [links](page.md), as in Markdown.
struct KeyExplanation {
  std::string path;                   // For example, "optimizer.lr"; empty for the whole job.
  std::string meaning;                // A sentence or a noun phrase.
  KeyType type = KeyType::kSection;   // For a list, the type of each entry.
  bool is_list = false;               // The key takes a list.
  std::vector<std::string> words;     // If not empty, the key takes only these words.
  std::vector<std::string> taken_by;  // Kinds of the section that take the key; empty for all.
  std::string default_text;           // "required", a `value` or a note; empty if there is none.
  std::string limits;                 // For example, "above 0, at most 1"; empty for no limits.
};

// Returns the description of the key at `path`, or of the whole job for an empty path. Fails with
// NOT_FOUND for an unknown key; the message names the nearest one and lists all.
absl::StatusOr<KeyExplanation> ExplainKey(absl::string_view path);

// Returns the descriptions of the keys in the section at `path`, in the order of the schema. Fails
// with NOT_FOUND for an unknown key, and with INVALID_ARGUMENT for a key without keys of its own.
absl::StatusOr<std::vector<KeyExplanation>> ExplainKeysOf(absl::string_view path);

}  // namespace sluice::job
