// SPDX-License-Identifier: Apache-2.0
// The marks of `sluice doctor`'s checks, for tests.
#pragma once

#include <string>

#include "cli/doctor/findings.h"

namespace sluice::cli {

// Returns the marks of all checks, such as "ok ok failed ".
inline std::string MarksOf(const DoctorFindings& findings) {
  std::string marks;
  for (const DoctorCheck& check : ChecksOf(findings)) {
    const std::string line = FormatCheck(check);
    marks += line.substr(0, line.find(' ')) + " ";
  }
  return marks;
}

}  // namespace sluice::cli
