// SPDX-License-Identifier: Apache-2.0
#include "compress/codec.h"

namespace sluice::compress {

size_t Codec::StateSize(size_t, uint32_t) const { return 0; }

void Codec::InitState(size_t, uint32_t, uint64_t, absl::Span<float>) const {}

void Codec::Observe(absl::Span<const std::byte>, absl::Span<float>) const {}

void Codec::ReturnFrame(absl::Span<const std::byte>, absl::Span<float>, absl::Span<float>) const {}

}  // namespace sluice::compress
