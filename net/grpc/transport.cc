// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/transport.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/client_interceptor.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "net/grpc/bearer.h"
#include "net/grpc/connection_reason.h"
#include "net/grpc/grpc_weakness.h"
#include "net/grpc/host_port.h"
#include "net/grpc/role_file.h"
#include "net/grpc/secret_mode.h"
#include "net/grpc/tls_files.h"
#include "net/grpc/token_file.h"

namespace sluice::net {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kRereadSeconds = 1;  // Time until a changed certificate takes effect.

class FileTransport final : public Transport {
 public:
  FileTransport(TransportOptions options, std::shared_ptr<TokenFile> token,
                std::shared_ptr<RoleFile> roles)
      : options_(std::move(options)), token_(std::move(token)), roles_(std::move(roles)) {
    if (!options_.tls()) return;
    provider_ = std::make_shared<tls::FileWatcherCertificateProvider>(
        options_.tls_key, options_.tls_cert, options_.tls_ca, kRereadSeconds);
  }

  std::shared_ptr<grpc::Channel> Dial(const std::string& address) const override;
  std::shared_ptr<grpc::Channel> DialForQuestions(const std::string& address) const override;
  std::shared_ptr<grpc::ServerCredentials> ToListen() const override;
  grpc::Status MayCall(const grpc::ServerContextBase& call,
                       std::optional<Method> method) const override;
  std::shared_ptr<grpc::Channel> DialInProcess(grpc::Server* server) const override;
  absl::Status MayListen(absl::string_view address, bool allow_anonymous) const override;
  std::string WarningFor(absl::string_view address) const override;
  std::string ListenWarning(absl::string_view address) const override;
  std::string Explain(absl::string_view reason) const override {
    return ConnectionReason(reason, options_.tls());
  }

 private:
  bool mutual() const { return options_.tls() && !options_.tls_ca.empty(); }
  std::shared_ptr<grpc::ChannelCredentials> ToDial() const;
  std::shared_ptr<grpc::Channel> DialWith(const std::string& address,
                                          grpc::ChannelArguments arguments) const;

  const TransportOptions options_;
  const std::shared_ptr<TokenFile> token_;  // Null if the process has no token.
  const std::shared_ptr<RoleFile> roles_;   // Null if every client has all roles.
  const InProcessSecret in_process_;
  std::shared_ptr<tls::FileWatcherCertificateProvider> provider_;
};

// Returns the names in the client's certificate. Without mutual TLS there are none.
std::vector<std::string> CertificateNames(const grpc::ServerContextBase& call) {
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> context = call.auth_context();
  if (context == nullptr || !context->IsPeerAuthenticated()) return names;
  for (const char* property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& name : context->FindPropertyValues(property)) {
      names.emplace_back(name.data(), name.size());
    }
  }
  return names;
}

grpc::Status CheckRoles(Roles roles, std::optional<Method> method) {
  if (roles.empty()) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            "the servers' --role-file gives this client no role: give --token-file, or --tls-cert, "
            "with a token or a certificate that the file names"};
  }
  if (!method.has_value()) return grpc::Status::OK;
  const MethodTraits& traits = TraitsOf(*method);
  if (roles.HasAnyOf(traits.roles)) return grpc::Status::OK;
  return {grpc::StatusCode::PERMISSION_DENIED,
          absl::StrCat(traits.path.value(), " needs the role ", ToString(traits.roles),
                       "; the servers' --role-file gives this client ", ToString(roles))};
}

void Watch(const TransportOptions& files, tls::TlsCredentialsOptions* options) {
  if (!files.tls_ca.empty()) options->watch_root_certs();
  if (!files.tls_cert.empty()) options->watch_identity_key_cert_pairs();
}

std::shared_ptr<grpc::ChannelCredentials> FileTransport::ToDial() const {
  if (provider_ == nullptr) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  Watch(options_, &options);
  return tls::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> FileTransport::ToListen() const {
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (provider_ != nullptr) {
    tls::TlsServerCredentialsOptions options(provider_);
    Watch(options_, &options);
    options.set_cert_request_type(options_.tls_ca.empty()
                                      ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                      : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    credentials = tls::TlsServerCredentials(options);
  }
  return credentials;
}

grpc::Status FileTransport::MayCall(const grpc::ServerContextBase& call,
                                    std::optional<Method> method) const {
  if (in_process_.IsShownIn(call.client_metadata())) return grpc::Status::OK;
  if (roles_ != nullptr) {
    const absl::string_view token = BearerOf(call.client_metadata());
    return CheckRoles(roles_->RolesOf(token, CertificateNames(call)), method);
  }
  if (token_ == nullptr) return grpc::Status::OK;
  return CheckBearer(call.client_metadata(), token_.get());
}

std::shared_ptr<grpc::Channel> FileTransport::DialInProcess(grpc::Server* server) const {
  std::vector<std::unique_ptr<tls::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(in_process_.Show());
  return server->experimental().InProcessChannelWithInterceptors({}, std::move(interceptors));
}

std::shared_ptr<grpc::Channel> FileTransport::DialWith(const std::string& address,
                                                       grpc::ChannelArguments arguments) const {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  if (token_ == nullptr) return grpc::CreateCustomChannel(address, ToDial(), arguments);
  // gRPC allows call credentials only over TLS, so an interceptor adds the token.
  std::vector<std::unique_ptr<tls::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(ShowBearer(token_));
  return tls::CreateCustomChannelWithInterceptors(address, ToDial(), arguments,
                                                  std::move(interceptors));
}

std::shared_ptr<grpc::Channel> FileTransport::Dial(const std::string& address) const {
  grpc::ChannelArguments arguments;
  // A proxy for web pages would receive the plaintext token, and seldom passes long streams on.
  // Without these settings, gRPC would read the environment itself.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, options_.grpc_proxy.empty() ? 0 : 1);
  if (!options_.grpc_proxy.empty()) arguments.SetString(GRPC_ARG_HTTP_PROXY, options_.grpc_proxy);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Time limit of a single connection attempt.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // A machine that vanishes does not close its connections. Without keepalives, a waiting client
  // would wait forever.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return DialWith(address, arguments);
}

std::shared_ptr<grpc::Channel> FileTransport::DialForQuestions(const std::string& address) const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return DialWith(address, arguments);
}

absl::Status FileTransport::MayListen(absl::string_view address, bool allow_anonymous) const {
  if (options_.tls() && options_.tls_cert.empty()) {
    return absl::InvalidArgumentError(
        "--tls-ca: a server with TLS also needs its own certificate: --tls-cert and --tls-key");
  }
  if (mutual() || token_ != nullptr || roles_ != nullptr || allow_anonymous ||
      IsLoopback(address)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen ", address,
      ": any host that reaches this address could join the job, read its model and change it. Give "
      "--token-file, the job's secret; or --tls-cert, --tls-key and --tls-ca, which require a "
      "certificate; or, on a network that you trust, --allow-anonymous"));
}

std::string FileTransport::WarningFor(absl::string_view address) const {
  if (token_ == nullptr || options_.tls() || IsLoopback(address)) return "";
  return absl::StrCat("the token travels in plaintext (", address,
                      "): everyone who sees the network's packets can read it. TLS hides it: "
                      "--tls-cert, --tls-key, --tls-ca");
}

std::string FileTransport::ListenWarning(absl::string_view address) const {
  return mutual() || IsLoopback(address) ? "" : GrpcWeakness(LinkedGrpcVersion());
}

}  // namespace

std::shared_ptr<const Transport> Transport::Plain() {
  return std::make_shared<FileTransport>(TransportOptions(), nullptr, nullptr);
}

absl::StatusOr<std::shared_ptr<const Transport>> Transport::Open(const TransportOptions& options,
                                                                 const Logger& logger) {
  if (absl::Status files = CheckTlsFiles(options, absl::Now()); !files.ok()) return files;
  std::shared_ptr<TokenFile> token;
  if (!options.token_file.empty()) {
    absl::StatusOr<std::unique_ptr<TokenFile>> opened = TokenFile::Open(options.token_file, logger);
    if (!opened.ok()) return opened.status();
    token = *std::move(opened);
  }
  std::shared_ptr<RoleFile> roles;
  if (!options.role_file.empty()) {
    absl::StatusOr<std::unique_ptr<RoleFile>> opened = RoleFile::Open(options.role_file, logger);
    if (!opened.ok()) return opened.status();
    roles = *std::move(opened);
  }
  for (const auto& [flag, path] :
       {std::pair("--token-file", options.token_file), std::pair("--role-file", options.role_file),
        std::pair("--tls-key", options.tls_key)}) {
    const std::string warning = ExposedSecretWarning(flag, path);
    if (!warning.empty()) logger.Warning(warning);
  }
  return std::make_shared<FileTransport>(options, std::move(token), std::move(roles));
}

}  // namespace sluice::net
