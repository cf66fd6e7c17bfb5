// SPDX-License-Identifier: Apache-2.0
// Fuzzer for the HTTP ports: any bytes must give one complete answer, which reveals a page only to
// a permitted name, and the port must then still serve others. Input: the size of the first piece
// (2 bytes), then the bytes that a client sends.

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "net/http/host_names.h"
#include "net/http/http_request.h"
#include "net/http/http_server.h"
#include "server/http/server_pages.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/net/http/http_client.h"

namespace sluice::net {
namespace {

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7F;
  });
}

std::optional<HttpRequest> CheckParser(absl::string_view bytes, size_t first_piece) {
  const std::optional<size_t> size = RequestSize(bytes, 0);
  const size_t piece = std::min(first_piece, bytes.size());
  const std::optional<size_t> early = RequestSize(bytes.substr(0, piece), 0);
  if (!early.has_value()) {
    Check(RequestSize(bytes, piece) == size, "pieces do not move the end of a request");
  }
  if (!size.has_value()) return std::nullopt;
  auto parsed = ParseRequest(bytes.substr(0, *size));
  if (const auto* const refusal = std::get_if<HttpAnswer>(&parsed)) {
    Check(refusal->status >= 400, "a refusal is an error");
    Check(IsPrintable(absl::StripSuffix(refusal->body, "\n")), "a refusal is a line of text");
    return std::nullopt;
  }
  HttpRequest request = std::get<HttpRequest>(std::move(parsed));
  Check(request.path.starts_with("/"), "a path begins with a slash");
  Check(!absl::StrContains(request.path, '\n') && !absl::StrContains(request.path, '\r') &&
            !absl::StrContains(request.path, ' ') && !absl::StrContains(request.path, '?'),
        "a path is one word without a query");
  return request;
}

const std::unique_ptr<HttpServer>& Server() {
  static const auto* const server = new std::unique_ptr<HttpServer>(
      *HttpServer::Start({.listen = "127.0.0.1:0"}, [](const std::string& path) {
        const auto view = [] {
          return server::HttpView{.job_name = "fuzz", .software_version = "1"};
        };
        return server::ServerPage(path, view, [] { return std::string(); });
      }));
  return *server;
}

void CheckAnswer(absl::string_view answer, const std::optional<HttpRequest>& request) {
  Check(absl::StartsWith(answer, "HTTP/1.1 "), "a complete request gets an answer");
  const size_t end = answer.find("\r\n\r\n");
  Check(end != absl::string_view::npos, "an answer has complete headers");
  const absl::string_view body = answer.substr(end + 4);
  const std::string length = absl::StrCat("Content-Length: ", body.size(), "\r\n");
  const bool head = request.has_value() && request->head;
  Check(head ? body.empty() : absl::StrContains(answer.substr(0, end), length),
        "an answer has the size that it states");
  if (!absl::StartsWith(answer, "HTTP/1.1 200 ")) return;
  Check(request.has_value(), "only a valid request gets a page");
  const bool health = request->path == "/livez" || request->path == "/startupz";
  const HostNames names({"127.0.0.1"});
  Check(health || !request->host.has_value() || names.Allow(HostName(*request->host)),
        "only a permitted name gets a page");
}

void CheckHttp(FuzzInput input) {
  const size_t first_piece = input.Short();
  const absl::Span<const std::byte> rest = input.Rest();
  const absl::string_view bytes(reinterpret_cast<const char*>(rest.data()), rest.size());
  const std::optional<HttpRequest> request = CheckParser(bytes, first_piece);
  HttpClient client(Server()->port());
  // A machine that is short of local ports is not a finding.
  Check(client.connected() || errno == EADDRNOTAVAIL, "the port accepts connections");
  if (!client.connected()) return;
  const size_t piece = std::min(first_piece, bytes.size());
  client.Send(bytes.substr(0, piece));
  client.Send(bytes.substr(piece));
  const absl::string_view read = bytes.substr(0, kRequestBytesMax);
  // The port waits for the rest of an incomplete request.
  if (!RequestSize(read, 0).has_value() && bytes.size() < kRequestBytesMax) return;
  CheckAnswer(client.Rest(), RequestSize(read, 0).has_value() ? request : std::nullopt);
}

}  // namespace
}  // namespace sluice::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::net::CheckHttp({data, size});
  return 0;
}
