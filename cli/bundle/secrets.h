// SPDX-License-Identifier: Apache-2.0
// Secrets: recognizes files that must not leave a machine, and removes known tokens from texts.
// Pure.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice::cli {

// Returns true for the names of files that usually hold tokens, keys, passwords or roles, such as
// `token`, `tls.key` or `.netrc`.
bool IsSecretName(absl::string_view name);

// Returns true if a text has a private key, a token's line of a role file, or nothing but one long
// word, as a token's file has.
bool HoldsSecret(absl::string_view text);

class Secrets {
 public:
  // Adds the lines and the words of a file of secrets. Those shorter than a token may be are left
  // out, because they could be words of any text.
  void AddFile(absl::string_view text);
  // Replaces every secret in `text` by kRemoved.
  std::string RemoveFrom(std::string text) const;

  static constexpr absl::string_view kRemoved = "[secret removed]";

 private:
  std::set<std::string> secrets_;
};

}  // namespace sluice::cli
