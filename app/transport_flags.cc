// SPDX-License-Identifier: Apache-2.0
#include "app/transport_flags.h"

#include <CLI/CLI.hpp>

namespace sluice::app {

void AddTransportFlags(CLI::App* app, net::TransportOptions* options) {
  app->add_option("--tls-cert", options->tls_cert,
                  "TLS: this process's certificate (PEM); reloaded when it changes")
      ->type_name("FILE");
  app->add_option("--tls-key", options->tls_key, "TLS: the private key of --tls-cert (PEM)")
      ->type_name("FILE");
  app->add_option(
         "--tls-ca", options->tls_ca,
         "TLS: CA certificates to trust (PEM). A server then also requires client certificates")
      ->type_name("FILE");
  app->add_option("--token-file", options->token_file,
                  "File with the job's token. The first line is sent with every call; a server "
                  "also accepts the second")
      ->type_name("FILE");
}

}  // namespace sluice::app
