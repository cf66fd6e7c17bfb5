// SPDX-License-Identifier: Apache-2.0
#include "net/http/content_policy.h"

#include <openssl/sha.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice::net {
namespace {

// Returns " 'sha256-...'" for each text between `begin` and `end`, or " 'none'" if there is none.
std::string HashesBetween(absl::string_view begin, absl::string_view end, absl::string_view page) {
  std::string hashes;
  for (size_t at = 0; (at = page.find(begin, at)) != absl::string_view::npos;) {
    at += begin.size();
    const absl::string_view text = page.substr(at, page.find(end, at) - at);
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
    SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
    const absl::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
    absl::StrAppend(&hashes, " 'sha256-", absl::Base64Escape(bytes), "'");
    at += text.size();
  }
  return hashes.empty() ? " 'none'" : hashes;
}

}  // namespace

const char kEmptyPolicy[] = "default-src 'none'; frame-ancestors 'none'";

std::string PolicyOf(absl::string_view page) {
  return absl::StrCat("default-src 'none'; script-src",
                      HashesBetween("<script>", "</script>", page), "; style-src",
                      HashesBetween("<style>", "</style>", page),
                      "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

}  // namespace sluice::net
