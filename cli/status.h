// `sluice status`: what a coordinator says of its job, for people and for programs.
#pragma once

#include <string>

#include "sluice/v1/coordinator.pb.h"
#include "transport/transport_options.h"

namespace sluice {

// Several lines, the last without a newline. Control characters of the other side are shown as '?'.
std::string FormatStatus(const v1::GetStatusReply& status);

// Prints the status of the job at `coordinator` (HOST:PORT). The program's exit code: 0; 1: nobody
// answers; 2: a file of `security` is wrong.
int ShowStatus(const std::string& coordinator, bool json, const TransportOptions& security);

}  // namespace sluice
