#include "app/transport_flags.h"

#include <CLI/CLI.hpp>

namespace sluice::app {

void AddTransportFlags(CLI::App* app, net::TransportOptions* options) {
  app->add_option("--tls-cert", options->tls_cert,
                  "TLS: this process's certificate (PEM); read again when it changes")
      ->type_name("FILE");
  app->add_option("--tls-key", options->tls_key, "TLS: the private key of --tls-cert (PEM)")
      ->type_name("FILE");
  app->add_option("--tls-ca", options->tls_ca,
                  "TLS: certificates of whom to trust (PEM). On a server clients must then show "
                  "one of theirs, too")
      ->type_name("FILE");
  app->add_option("--token-file", options->token_file,
                  "The job's token: its first line goes with every call; a server takes the "
                  "second, too")
      ->type_name("FILE");
}

}  // namespace sluice::app
