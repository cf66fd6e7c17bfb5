// Reads the requests of an HttpServer: GET and HEAD, and of the headers only those that decide
// whether and for whom a request is answered. Never recursive, linear in the request.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "net/http/http_answer.h"

namespace sluice::net {

constexpr size_t kRequestBytesMax = 8 << 10;  // Request line and headers.

struct HttpRequest {
  bool head = false;
  std::string path{};  // Without query, as it was sent: escapes are not decoded.
  std::optional<std::string> host{};
};

// The size of the request line and headers that `received` begins with, nullopt if they are not
// whole. The first `seen` bytes are known to hold no end.
std::optional<size_t> RequestSize(absl::string_view received, size_t seen);

// `text`: of that size. The answer says why the request is refused.
std::variant<HttpRequest, HttpAnswer> ParseRequest(absl::string_view text);

}  // namespace sluice::net
