#include "transport/bearer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

constexpr char kHeader[] = "authorization";
constexpr char kScheme[] = "Bearer ";

class Show final : public grpc::experimental::Interceptor {
 public:
  explicit Show(TokenFile* token) : token_(token) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(kHeader, absl::StrCat(kScheme, token_->Own()));
    }
    methods->Proceed();
  }

 private:
  TokenFile* const token_;
};

class ShowFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit ShowFactory(std::shared_ptr<TokenFile> token) : token_(std::move(token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new Show(token_.get());  // gRPC's to delete, before the channel.
  }

 private:
  const std::shared_ptr<TokenFile> token_;
};

class Check final : public grpc::AuthMetadataProcessor {
 public:
  explicit Check(std::shared_ptr<TokenFile> token) : token_(std::move(token)) {}

  bool IsBlocking() const override { return false; }  // A small file is read.

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* /*context*/,
                       OutputMetadata* consumed, OutputMetadata* /*response*/) override {
    const auto found = metadata.find(kHeader);
    if (found == metadata.end()) {
      return {grpc::StatusCode::UNAUTHENTICATED,
              "this job's servers want its token: give --token-file with the job's file"};
    }
    absl::string_view value(found->second.data(), found->second.size());
    if (metadata.count(kHeader) != 1 || !absl::ConsumePrefix(&value, kScheme) ||
        !token_->Accepts(value)) {
      return {grpc::StatusCode::UNAUTHENTICATED,
              "the token that came is not this job's: is --token-file the same job's file here "
              "and on the servers?"};
    }
    consumed->emplace(kHeader, std::string(found->second.data(), found->second.size()));
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<TokenFile> token_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> ShowBearer(
    std::shared_ptr<TokenFile> token) {
  return std::make_unique<ShowFactory>(std::move(token));
}

std::shared_ptr<grpc::AuthMetadataProcessor> CheckBearer(std::shared_ptr<TokenFile> token) {
  return std::make_shared<Check>(std::move(token));
}

}  // namespace sluice
