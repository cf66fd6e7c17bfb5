// A job's token on its way: `authorization: Bearer TOKEN` in the metadata of every call.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/support/client_interceptor.h>

#include <memory>

#include "transport/token_file.h"

namespace sluice {

// Puts the token of the moment into each call of a channel.
std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> ShowBearer(
    std::shared_ptr<TokenFile> token);

// Ends calls without it, or with a wrong one, with UNAUTHENTICATED before they are looked at.
std::shared_ptr<grpc::AuthMetadataProcessor> CheckBearer(std::shared_ptr<TokenFile> token);

}  // namespace sluice
