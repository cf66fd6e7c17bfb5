// SPDX-License-Identifier: Apache-2.0
// Parser for the requests of an HttpServer: GET and HEAD. The parser reads only the headers that
// decide whether a request is answered and for which host. It does not recurse, and its time is
// linear in the request's size.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "net/http/http_answer.h"

namespace sluice::net {

constexpr size_t kRequestBytesMax = 8 << 10;  // Limit for the request line and the headers.

struct HttpRequest {
  bool head = false;
  std::string path{};  // The path as it was sent, without the query. Escapes are not decoded.
  std::optional<std::string> host{};
};

// Returns the size of the request line and headers at the start of `received`, or nullopt if they
// are incomplete. `seen` is the number of bytes that an earlier call has searched without finding
// the end.
std::optional<size_t> RequestSize(absl::string_view received, size_t seen);

// Parses a request. `text` must have the size that RequestSize returned. A returned HttpAnswer
// refuses the request and states the reason.
std::variant<HttpRequest, HttpAnswer> ParseRequest(absl::string_view text);

}  // namespace sluice::net
