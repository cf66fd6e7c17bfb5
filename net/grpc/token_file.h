// TokenFile: the secret that a job's processes show each other, from a file of one or two lines.
// Clients send the first line, servers take either: so a token can be changed while the job runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/mutex.h"

namespace sluice::net {

inline constexpr size_t kTokenBytesMin = 16;
inline constexpr size_t kTokenBytesMax = 4096;

// The tokens in a file's text, one or two. INVALID_ARGUMENT names `path` and the line, never what
// is in it.
absl::StatusOr<std::vector<std::string>> ParseTokens(absl::string_view text,
                                                     absl::string_view path);

// Thread-safe. The file is read at every use, which is once for each call or stream; while it
// cannot be, what it last held goes on.
class TokenFile {
 public:
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(std::string path, Logger logger);

  // What a client shows.
  std::string Own();
  // Whether a server takes it; in the same time for all wrong ones of a length.
  bool Accepts(absl::string_view token);

 private:
  TokenFile(std::string path, std::vector<std::string> tokens, Logger logger)
      : path_(std::move(path)), logger_(std::move(logger)), tokens_(std::move(tokens)) {}
  std::vector<std::string> Read();

  const std::string path_;
  const Logger logger_;
  Mutex mutex_;
  std::vector<std::string> tokens_ ABSL_GUARDED_BY(mutex_);
  bool told_ ABSL_GUARDED_BY(mutex_) = false;  // That the file cannot be used now.
};

}  // namespace sluice::net
