// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/secrets.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/enum_names.h"
#include "net/grpc/role.h"
#include "net/grpc/token_file.h"

namespace sluice::cli {
namespace {

constexpr absl::string_view kSecretParts[] = {"token", "secret", "passw",      "credential",
                                              "role",  "id_rsa", "id_ed25519", "id_ecdsa"};
constexpr absl::string_view kSecretEnds[] = {".key", ".pem", ".p12", ".pfx", ".jks", ".kdbx"};

std::vector<absl::string_view> Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\r\n\v\f"), absl::SkipEmpty());
}

bool IsRoleLine(absl::string_view line) {
  const std::vector<absl::string_view> words = Words(line);
  return words.size() == 3 && words[1] == "token" && FindByName<net::Role>(words[0]).has_value();
}

}  // namespace

bool IsSecretName(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (absl::StartsWith(lower, ".")) return true;
  for (const absl::string_view part : kSecretParts) {
    if (absl::StrContains(lower, part)) return true;
  }
  for (const absl::string_view end : kSecretEnds) {
    if (absl::EndsWith(lower, end)) return true;
  }
  return false;
}

bool HoldsSecret(absl::string_view text) {
  if (absl::StrContains(text, "PRIVATE KEY-----")) return true;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (IsRoleLine(line)) return true;
  }
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  return stripped.size() >= net::kTokenBytesMin && Words(stripped).size() == 1;
}

void Secrets::AddFile(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.size() >= net::kTokenBytesMin) secrets_.emplace(stripped);
    for (const absl::string_view word : Words(line)) {
      if (word.size() >= net::kTokenBytesMin) secrets_.emplace(word);
    }
  }
}

std::string Secrets::RemoveFrom(std::string text) const {
  // In reverse order, a secret comes before those that are its beginning.
  for (auto secret = secrets_.rbegin(); secret != secrets_.rend(); ++secret) {
    size_t at = 0;
    while ((at = text.find(*secret, at)) != std::string::npos) {
      text.replace(at, secret->size(), kRemoved.data(), kRemoved.size());
      at += kRemoved.size();
    }
  }
  return text;
}

}  // namespace sluice::cli
