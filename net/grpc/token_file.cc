// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/token_file.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "net/grpc/small_file.h"

namespace sluice::net {
namespace {

constexpr char kFlag[] = "--token-file";
constexpr size_t kTokensMax = 2;
constexpr size_t kFileBytesMax = 2 * kTokensMax * kTokenBytesMax;

// Returns true if a header may contain this byte.
bool IsTokenByte(char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); }

absl::StatusOr<std::vector<std::string>> ReadTokens(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kFlag, kFileBytesMax);
  if (!text.ok()) return text.status();
  return ParseTokens(*text, path);
}

}  // namespace

std::string TokenProblem(absl::string_view token) {
  if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax) {
    return absl::StrCat("has ", token.size(), " bytes; it needs ", kTokenBytesMin, " to ",
                        kTokenBytesMax, ": `openssl rand -hex 32` makes one");
  }
  if (!std::all_of(token.begin(), token.end(), IsTokenByte)) {
    return "has bytes other than visible ASCII: `openssl rand -hex 32` makes one";
  }
  return "";
}

bool IsSameToken(absl::string_view known, absl::string_view token) {
  return known.size() == token.size() &&
         CRYPTO_memcmp(known.data(), token.data(), token.size()) == 0;
}

absl::StatusOr<std::vector<std::string>> ParseTokens(absl::string_view text,
                                                     absl::string_view path) {
  std::vector<std::string> tokens;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    tokens.emplace_back(line);
    const auto refused = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat(kFlag, ": token ", tokens.size(), " in ", path, " ", why));
    };
    if (tokens.size() > kTokensMax) {
      return refused(
          "is one too many: a file has at most two, the new one and the old one, each on its own "
          "line");
    }
    if (const std::string problem = TokenProblem(line); !problem.empty()) return refused(problem);
  }
  if (!tokens.empty()) return tokens;
  return absl::InvalidArgumentError(
      absl::StrCat(kFlag, ": ", path, " is empty: `openssl rand -hex 32` makes a token"));
}

TokenFile::TokenFile(std::string path, std::vector<std::string> tokens, Logger logger)
    : file_(std::move(path), &ReadTokens, std::move(tokens), std::move(logger)) {}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(std::string path, Logger logger) {
  absl::StatusOr<std::vector<std::string>> tokens = ReadTokens(path);
  if (!tokens.ok()) return tokens.status();
  return std::unique_ptr<TokenFile>(
      new TokenFile(std::move(path), *std::move(tokens), std::move(logger)));
}

std::string TokenFile::Own() { return file_.Read().front(); }

bool TokenFile::Accepts(absl::string_view token) {
  bool accepted = false;
  for (const std::string& known : file_.Read()) accepted |= IsSameToken(known, token);
  return accepted;
}

}  // namespace sluice::net
