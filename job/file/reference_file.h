// ReferenceFile: the tests of a run, out of the scalars.csv that it left.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/control_spec.h"

namespace sluice::job {

// Rows with a test, in the file's order; accuracies as percent. The error says what is wrong with
// the file and in which line: it is not there, of another kind or too large, has no tests, or is
// not a curve (ValidateCurve).
absl::StatusOr<std::vector<CurvePoint>> ReadReferenceFile(const std::string& path);

}  // namespace sluice::job
