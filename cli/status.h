// SPDX-License-Identifier: Apache-2.0
// `sluice status`: shows the status of a coordinator's job to people and programs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/launch/console.h"
#include "net/grpc/transport.h"
#include "net/grpc/transport_options.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

// Returns a copy in which the control characters of all strings are escaped, for consoles.
v1::GetStatusReply WithoutControls(v1::GetStatusReply status);

// Returns several lines. The last line has no newline.
std::string FormatStatus(const v1::GetStatusReply& received);

struct StatusOptions {
  std::string coordinator = "127.0.0.1:7070";  // HOST:PORT
  bool json = false;
  bool watch = false;
  net::TransportOptions security{};
  ConsoleOptions console{};
};

// Time limit of a request for the status.
inline constexpr absl::Duration kStatusTimeout = absl::Seconds(5);

// Returns the status as JSON, with `line` in one line, for outputs with one status per line.
std::optional<std::string> StatusJson(const v1::GetStatusReply& status, bool line);

// Returns lines for stderr that say why a request to `coordinator` failed and what to do.
std::string WhyNoAnswer(const std::string& coordinator, const absl::Status& why);

// Returns null, after printing the reason, if a file of `security` is invalid.
std::shared_ptr<const net::Transport> OpenTransport(const net::TransportOptions& security);

// Asks for the status once. Returns 0, or prints why there is no answer and returns the exit code
// of the program: 1 if no coordinator answers, 2 if a file of `security` is invalid.
int AskForStatus(const StatusOptions& options, v1::GetStatusReply* status);

// Prints the status of a job. With `watch`, prints the status every second until the job has ended
// or a signal arrives. On a terminal, each status replaces the previous one. Returns the exit code
// of the program: 0; 1 if no coordinator answers, or if the coordinator stops answering or the job
// fails during the watch; 2 if a file of `security` is invalid; 128 + a signal.
int ShowStatus(const StatusOptions& options);

}  // namespace sluice::cli
