// SPDX-License-Identifier: Apache-2.0
// The instruction sets for which the kernels in this folder are compiled. Each kernel has one
// source, which is compiled once per instruction set. On its first call, a kernel selects the
// machine's best set. All sets give identical results; tests verify this by forcing each set.
#pragma once

#include <string>
#include <vector>

namespace sluice::compress {

// Returns the names of the instruction sets that this machine supports, best first, for example
// AVX3_ZEN4, AVX3, AVX2, SSE4, EMU128 (portable code).
std::vector<std::string> SimdTargets();

// Makes all kernels use `target`, which must be one of SimdTargets(). An empty string selects the
// best set again. For tests and benchmarks only. No other thread may run a kernel during the call.
void ForceSimdTarget(const std::string& target);

}  // namespace sluice::compress
