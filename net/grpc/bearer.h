// Transport of a job's token: the metadata of every call contains `authorization: Bearer TOKEN`.
#pragma once

#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>

#include "net/grpc/token_file.h"

namespace sluice::net {

// Adds the current token to each call of a channel.
std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> ShowBearer(
    std::shared_ptr<TokenFile> token);

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
