// SPDX-License-Identifier: Apache-2.0
// Transport of a job's token: the metadata of every call contains `authorization: Bearer TOKEN`.
#pragma once

#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "net/grpc/token_file.h"

namespace sluice::net {

// Adds the current token to each call of a channel.
std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> ShowBearer(
    std::shared_ptr<TokenFile> token);

// Returns the token in the metadata of a received call. Returns an empty string if there is none or
// the metadata has another form.
absl::string_view BearerOf(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata);

// Checks the metadata of a received call. Returns UNAUTHENTICATED if it has no token or a wrong
// one.
grpc::Status CheckBearer(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                         TokenFile* token);

// A secret that replaces the token in calls within a process, because the token may change while
// the process runs. gRPC does not report that a call comes from the same process.
class InProcessSecret {
 public:
  InProcessSecret();

  std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> Show() const;
  bool IsShownIn(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) const;

 private:
  const std::string secret_;
};

}  // namespace sluice::net
