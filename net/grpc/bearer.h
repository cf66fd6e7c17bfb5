// A job's token on its way: `authorization: Bearer TOKEN` in the metadata of every call.
#pragma once

#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>

#include "net/grpc/token_file.h"

namespace sluice::net {

// Puts the token of the moment into each call of a channel.
std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> ShowBearer(
    std::shared_ptr<TokenFile> token);

// UNAUTHENTICATED: `metadata`, which a call came with, has no token, or a wrong one.
grpc::Status CheckBearer(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                         TokenFile* token);

// What calls within a process show in place of a token, which may change meanwhile. gRPC does not
// say of a call that it came from the same process.
class InProcessSecret {
 public:
  InProcessSecret();

  std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> Show() const;
  bool IsShownIn(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) const;

 private:
  const std::string secret_;
};

}  // namespace sluice::net
