// SPDX-License-Identifier: Apache-2.0
// Rounding of parameters to the type that followers asked for.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "compress/element_type.h"

namespace sluice::follow {

// Writes finite floats in `type`, rounded to the nearest value, ties to even. `out` has
// BytesOf(type) bytes for each of them.
void WriteTyped(compress::ElementType type, absl::Span<const float> values,
                absl::Span<std::byte> out);

}  // namespace sluice::follow
