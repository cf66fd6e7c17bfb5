// `sluice status`: what a coordinator says of its job, for people and for programs.
#pragma once

#include <string>

#include "sluice/v1/coordinator.pb.h"

namespace sluice {

// Several lines, the last without a newline. Control characters of the other side are shown as '?'.
std::string FormatStatus(const v1::GetStatusReply& status);

// Prints the status of the job at `coordinator` (HOST:PORT). The program's exit code: 0, or 1 if
// nobody answers.
int ShowStatus(const std::string& coordinator, bool json);

}  // namespace sluice
