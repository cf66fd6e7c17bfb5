// SPDX-License-Identifier: Apache-2.0
#include "cli/pacing/connect_request.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sluice::cli {
namespace {

constexpr absl::string_view kEndOfHead = "\r\n\r\n";

}  // namespace

absl::StatusOr<ConnectRequest> ParseConnectRequest(absl::string_view bytes) {
  const size_t end = bytes.substr(0, kConnectHeadMax).find(kEndOfHead);
  if (end == absl::string_view::npos) {
    if (bytes.size() < kConnectHeadMax) return ConnectRequest{};
    return absl::InvalidArgumentError("the request's head does not end");
  }
  const absl::string_view line = bytes.substr(0, bytes.find("\r\n"));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || words[0] != "CONNECT") {
    return absl::InvalidArgumentError("only CONNECT HOST:PORT is supported here");
  }
  absl::string_view host = words[1];
  const size_t colon = host.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(host.substr(colon + 1), &port) ||
      port == 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("no port in '", words[1], "'"));
  }
  host = host.substr(0, colon);
  if (host != "127.0.0.1" && host != "localhost" && host != "[::1]") {
    return absl::InvalidArgumentError(absl::StrCat("'", host, "' is not this machine"));
  }
  return ConnectRequest{static_cast<uint16_t>(port), end + kEndOfHead.size()};
}

}  // namespace sluice::cli
