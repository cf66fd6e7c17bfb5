// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/grpc_weakness.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice::net {
namespace {

// The first version in which the HPACK parser is fixed (CVE-2023-33953).
constexpr std::array<int, 3> kMended = {1, 56, 2};

}  // namespace

std::string LinkedGrpcVersion() { return grpc::Version(); }

std::string GrpcWeakness(absl::string_view version) {
  const std::vector<absl::string_view> parts = absl::StrSplit(version, '.');
  std::array<int, 3> numbers = {};
  for (size_t i = 0; i < numbers.size() && i < parts.size(); ++i) {
    absl::string_view digits = parts[i];
    size_t size = 0;
    while (size < digits.size() && absl::ascii_isdigit(digits[size])) ++size;
    if (!absl::SimpleAtoi(digits.substr(0, size), &numbers[i])) return "";
  }
  if (parts.size() < 2 || numbers >= kMended) return "";
  return absl::StrCat(
      "gRPC ", version,
      " has published weaknesses (such as CVE-2023-33953), and it reads data on this port before "
      "Sluice checks the token. Sluice limits the amount, but a host may still slow the job down "
      "or end it. Admit only members, with mutual TLS (--tls-cert, --tls-key, --tls-ca) or a "
      "network policy, or use a build with gRPC 1.56.2 or later");
}

}  // namespace sluice::net
