// SPDX-License-Identifier: Apache-2.0
// ReferenceFile: reads a run's test results from the file scalars.csv.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/control_spec.h"

namespace sluice::job {

// Returns the rows that have a test, in the order of the file, with accuracies in percent. Fails if
// the file is missing, too large or of another kind, has no tests, or does not form a valid curve
// (ValidateCurve). The error names the problem and the line.
absl::StatusOr<std::vector<CurvePoint>> ReadReferenceFile(const std::string& path);

}  // namespace sluice::job
