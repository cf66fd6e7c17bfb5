// SPDX-License-Identifier: Apache-2.0
// Conversion of a worker's compressor to and from a program's memory: the residual of each tensor,
// and the rest as bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compress/compressor.h"

namespace sluice::client {

// Writes the residual of each trained tensor, with one span per tensor, and returns the rest. Fails
// with INVALID_ARGUMENT if a span's size is wrong.
absl::StatusOr<std::string> Separate(compress::SavedCompressor saved,
                                     const std::vector<std::span<float>>& residuals);

// Does the reverse. Fails with INVALID_ARGUMENT if a span's size is wrong, and as
// protocol::ParseWorkerSnapshot.
absl::StatusOr<compress::SavedCompressor> Combine(
    absl::string_view rest, const std::vector<std::span<const float>>& residuals);

}  // namespace sluice::client
