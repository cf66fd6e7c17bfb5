// SPDX-License-Identifier: Apache-2.0
// Certificates for tests: a small CA, and certificates that it signs, as PEM files.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace sluice::net {

class TestCa {
 public:
  struct Certified {
    std::string subject_alt_name = "DNS:localhost,IP:127.0.0.1";
    absl::Duration valid_from = -absl::Hours(1);  // Relative to the current time.
    absl::Duration valid_until = absl::Hours(1);
  };

  // Creates a CA and writes `name`.pem into `folder`.
  TestCa(std::string folder, const std::string& name)
      : folder_(std::move(folder)), name_(name), key_(EVP_EC_gen("P-256")) {
    certificate_ = Sign(name, key_.get(), key_.get(), nullptr, {.subject_alt_name = ""});
    WriteCertificate(path());
  }

  std::string path() const { return absl::StrCat(folder_, "/", name_, ".pem"); }

  // Writes NAME.pem and NAME.key. Each is replaced atomically, so a concurrent reader sees either
  // the old or the new file. Returns the serial number.
  long Certify(const std::string& name, const Certified& what) {
    const Key key(EVP_EC_gen("P-256"));
    const Certificate certificate = Sign(name, key.get(), key_.get(), certificate_.get(), what);
    Write(absl::StrCat(folder_, "/", name, ".key"), [&](FILE* file) {
      return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    Write(absl::StrCat(folder_, "/", name, ".pem"),
          [&](FILE* file) { return PEM_write_X509(file, certificate.get()); });
    return serial_;
  }
  long Certify(const std::string& name) { return Certify(name, Certified()); }

 private:
  struct FreeKey {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  struct FreeCertificate {
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
  using Certificate = std::unique_ptr<X509, FreeCertificate>;

  Certificate Sign(const std::string& name, EVP_PKEY* key, EVP_PKEY* issuer_key, X509* issuer,
                   const Certified& what) {
    Certificate certificate(X509_new());
    X509* const made = certificate.get();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made), absl::ToInt64Seconds(what.valid_from));
    X509_gmtime_adj(X509_getm_notAfter(made), absl::ToInt64Seconds(what.valid_until));
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(made, X509_get_subject_name(issuer == nullptr ? made : issuer));
    X509_set_pubkey(made, key);
    AddExtension(made, NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    if (issuer != nullptr) AddExtension(made, NID_subject_alt_name, what.subject_alt_name);
    Check(X509_sign(made, issuer_key, EVP_sha256()) > 0, "a test's certificate is signed");
    return certificate;
  }
  static void AddExtension(X509* certificate, int kind, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
    Check(extension != nullptr, "a test's extension is one");
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <typename Print>
  static void Write(const std::string& path, const Print& print) {
    const std::string fresh = path + ".new";
    FILE* const file = std::fopen(fresh.c_str(), "w");
    Check(file != nullptr && print(file) == 1, "a test's file can be written");
    std::fclose(file);
    std::filesystem::rename(fresh, path);
  }
  void WriteCertificate(const std::string& path) const {
    Write(path, [&](FILE* file) { return PEM_write_X509(file, certificate_.get()); });
  }

  const std::string folder_;
  const std::string name_;
  const Key key_;
  Certificate certificate_;
  long serial_ = 0;
};

}  // namespace sluice::net
