// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/bearer.h"

#include <openssl/crypto.h>

#include <functional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sluice::net {
namespace {

constexpr char kHeader[] = "authorization";
constexpr char kScheme[] = "Bearer ";
constexpr char kInProcessHeader[] = "sluice-in-process";

// Adds one header to each call.
class Show final : public grpc::experimental::Interceptor {
 public:
  Show(const char* header, std::string value) : header_(header), value_(std::move(value)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(header_, value_);
    }
    methods->Proceed();
  }

 private:
  const char* const header_;
  const std::string value_;
};

class ShowFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  ShowFactory(const char* header, std::function<std::string()> value)
      : header_(header), value_(std::move(value)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new Show(header_, value_());  // gRPC deletes the interceptor before the channel.
  }

 private:
  const char* const header_;
  const std::function<std::string()> value_;
};

std::string RandomSecret() {
  std::random_device device;
  std::string secret;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&secret, absl::Hex(device(), absl::kZeroPad8));
  return secret;
}

}  // namespace

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> ShowBearer(
    std::shared_ptr<TokenFile> token) {
  return std::make_unique<ShowFactory>(
      kHeader, [token = std::move(token)] { return absl::StrCat(kScheme, token->Own()); });
}

absl::string_view BearerOf(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  const auto found = metadata.find(kHeader);
  if (metadata.count(kHeader) != 1) return "";
  absl::string_view value(found->second.data(), found->second.size());
  return absl::ConsumePrefix(&value, kScheme) ? value : "";
}

grpc::Status CheckBearer(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                         TokenFile* token) {
  if (metadata.count(kHeader) == 0) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            "this job's servers want its token: give --token-file with the job's file; "
            "`sluice run` prints its path"};
  }
  if (!token->Accepts(BearerOf(metadata))) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            "the received token is not this job's: check that --token-file is the same file here "
            "and on the servers"};
  }
  return grpc::Status::OK;
}

InProcessSecret::InProcessSecret() : secret_(RandomSecret()) {}

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> InProcessSecret::Show()
    const {
  return std::make_unique<ShowFactory>(kInProcessHeader, [secret = secret_] { return secret; });
}

bool InProcessSecret::IsShownIn(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) const {
  const auto found = metadata.find(kInProcessHeader);
  return found != metadata.end() && found->second.size() == secret_.size() &&
         CRYPTO_memcmp(found->second.data(), secret_.data(), secret_.size()) == 0;
}

}  // namespace sluice::net
