// `sluice status`: what a coordinator says of its job, for people and for programs.
#pragma once

#include <string>

#include "cli/launch/console.h"
#include "net/grpc/transport_options.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

// Control characters in all its texts are escaped, for consoles.
v1::GetStatusReply WithoutControls(v1::GetStatusReply status);

// Several lines, the last without a newline.
std::string FormatStatus(const v1::GetStatusReply& received);

struct StatusOptions {
  std::string coordinator = "127.0.0.1:7070";  // HOST:PORT
  bool json = false;
  bool watch = false;
  net::TransportOptions security{};
  ConsoleOptions console{};
};

// Prints a job's status; with `watch` again every second, on a terminal in the place of the last,
// until the job has ended or a signal comes. The program's exit code: 0; 1: nobody answers (any
// more), or the job failed while it was watched; 2: a file of `security` is wrong; 128 + a signal.
int ShowStatus(const StatusOptions& options);

}  // namespace sluice::cli
