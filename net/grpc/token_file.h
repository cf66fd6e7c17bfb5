// SPDX-License-Identifier: Apache-2.0
// TokenFile: the shared secret of a job's processes, from a file of one or two lines. Clients send
// the first line and servers accept either, so the token can be changed while the job runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "net/grpc/reread_file.h"

namespace sluice::net {

inline constexpr size_t kTokenBytesMin = 16;
inline constexpr size_t kTokenBytesMax = 4096;

// Returns what is wrong with a token, as "has 6 bytes; ...", or an empty string. The result never
// contains the token.
std::string TokenProblem(absl::string_view token);

// Returns whether the tokens are equal. Takes the same time for all tokens of the same length.
bool IsSameToken(absl::string_view known, absl::string_view token);

// Returns the one or two tokens in a file's text. Errors are INVALID_ARGUMENT and name `path` and
// the line, but never contain the tokens.
absl::StatusOr<std::vector<std::string>> ParseTokens(absl::string_view text,
                                                     absl::string_view path);

// The file is read at every use, which is once per call or stream. While the file cannot be read,
// its last content stays valid. Thread-safe.
class TokenFile {
 public:
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(std::string path, Logger logger);

  // Returns the token that a client sends.
  std::string Own();
  // Returns whether a server accepts the token. The call takes the same time for all wrong tokens
  // of the same length.
  bool Accepts(absl::string_view token);

 private:
  TokenFile(std::string path, std::vector<std::string> tokens, Logger logger);

  RereadFile<std::vector<std::string>> file_;
};

}  // namespace sluice::net
