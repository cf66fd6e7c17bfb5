// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "net/grpc/small_file.h"

namespace sluice::net {
namespace {

constexpr size_t kPemBytesMax = 4 << 20;  // A system's bundle of all CAs is about 200 kB.

// A deleter for OpenSSL objects.
template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<&BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<&EVP_PKEY_free>>;

absl::Status Wrong(const char* flag, const std::string& path, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " ", what));
}

// Refuses a key with a passphrase; OpenSSL would otherwise ask for the passphrase on the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*unused*/) { return -1; }

absl::StatusOr<Certificate> ReadCertificate(const char* flag, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, flag, kPemBytesMax);
  if (!text.ok()) return text.status();
  const Bio bio(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (certificate == nullptr) return Wrong(flag, path, "has no certificate in PEM");
  return certificate;
}

absl::StatusOr<Key> ReadKey(const char* flag, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, flag, kPemBytesMax);
  if (!text.ok()) return text.status();
  const Bio bio(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (key == nullptr) {
    return Wrong(flag, path, "has no private key in PEM, or its key has a passphrase");
  }
  return key;
}

absl::Status CheckDates(const X509* certificate, const std::string& path, absl::Time now) {
  std::time_t seconds = absl::ToTimeT(now);
  if (X509_cmp_time(X509_get0_notAfter(certificate), &seconds) < 0) {
    return Wrong("--tls-cert", path, "has expired: renew it, or set this machine's clock");
  }
  if (X509_cmp_time(X509_get0_notBefore(certificate), &seconds) > 0) {
    return Wrong("--tls-cert", path, "is not valid yet: check this machine's clock");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTlsFiles(const TransportOptions& options, absl::Time now) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key are needed together: give both");
  }
  if (!options.tls_ca.empty()) {
    const absl::StatusOr<Certificate> ca = ReadCertificate("--tls-ca", options.tls_ca);
    if (!ca.ok()) return ca.status();
  }
  if (options.tls_cert.empty()) return absl::OkStatus();
  const absl::StatusOr<Certificate> certificate = ReadCertificate("--tls-cert", options.tls_cert);
  if (!certificate.ok()) return certificate.status();
  const absl::StatusOr<Key> key = ReadKey("--tls-key", options.tls_key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return Wrong("--tls-key", options.tls_key,
                 absl::StrCat("is not the key of the certificate in ", options.tls_cert));
  }
  return CheckDates(certificate->get(), options.tls_cert, now);
}

}  // namespace sluice::net
