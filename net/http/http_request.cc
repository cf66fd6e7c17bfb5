// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace sluice::net {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";
constexpr absl::string_view kEnd = "\r\n\r\n";

HttpAnswer BadRequest(const char* why) { return {.status = 400, .body = why}; }

// Removes the first line from `text` and returns it.
absl::string_view NextLine(absl::string_view* text) {
  const size_t end = text->find(kLineEnd);
  const absl::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(text->size(), line.size() + kLineEnd.size()));
  return line;
}

bool IsTokenCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("!#$%&'*+-.^_`|~").find(c) != absl::string_view::npos;
}
bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), &IsTokenCharacter);
}
bool HasControlCharacter(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
}

// Returns nullopt if `line` is valid, and otherwise the answer that refuses the request.
std::optional<HttpAnswer> ReadRequestLine(absl::string_view line, HttpRequest* request,
                                          bool* host_required) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == absl::string_view::npos || first == last) {
    return BadRequest("the first line is not METHOD PATH HTTP/1.1\n");
  }
  const absl::string_view method = line.substr(0, first);
  const absl::string_view target = line.substr(first + 1, last - first - 1);
  const absl::string_view version = line.substr(last + 1);
  if (!IsToken(method) || target.empty() || target.front() != '/' ||
      target.find(' ') != absl::string_view::npos || HasControlCharacter(target)) {
    return BadRequest("the first line is not METHOD PATH HTTP/1.1\n");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return HttpAnswer{.status = 505, .body = "this server supports only HTTP/1.1\n"};
  }
  if (method != "GET" && method != "HEAD") {
    return HttpAnswer{.status = 405, .body = "this server is read-only\n"};
  }
  request->head = method == "HEAD";
  request->path = std::string(target.substr(0, target.find('?')));
  *host_required = version == "HTTP/1.1";
  return std::nullopt;
}

std::optional<HttpAnswer> ReadHeader(absl::string_view line, HttpRequest* request) {
  const size_t colon = line.find(':');
  const absl::string_view name = line.substr(0, colon);
  if (colon == absl::string_view::npos || !IsToken(name) || HasControlCharacter(line)) {
    return BadRequest("a header is not NAME: VALUE\n");
  }
  const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (absl::EqualsIgnoreCase(name, "Host")) {
    if (request->host.has_value()) return BadRequest("there are two Host headers\n");
    request->host = std::string(value);
  } else if (absl::EqualsIgnoreCase(name, "Transfer-Encoding") ||
             (absl::EqualsIgnoreCase(name, "Content-Length") && value != "0")) {
    return HttpAnswer{.status = 413, .body = "requests have no content here\n"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> RequestSize(absl::string_view received, size_t seen) {
  // The end mark may have arrived in two pieces.
  const size_t from = seen < kEnd.size() ? 0 : seen - kEnd.size() + 1;
  const size_t end = received.find(kEnd, from);
  if (end == absl::string_view::npos) return std::nullopt;
  return end + kEnd.size();
}

std::variant<HttpRequest, HttpAnswer> ParseRequest(absl::string_view text) {
  text.remove_suffix(kLineEnd.size());  // This removes the end of the empty line.
  HttpRequest request;
  bool host_required = true;
  std::optional<HttpAnswer> refusal = ReadRequestLine(NextLine(&text), &request, &host_required);
  while (!refusal.has_value() && !text.empty()) refusal = ReadHeader(NextLine(&text), &request);
  if (!refusal.has_value() && host_required && !request.host.has_value()) {
    refusal = BadRequest("there is no Host header\n");
  }
  if (refusal.has_value()) return *std::move(refusal);
  return request;
}

}  // namespace sluice::net
