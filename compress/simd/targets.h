// The instruction sets that the kernels in this folder are compiled for. Each kernel is one source,
// compiled once per set; the best set of the machine is picked when it is first called. All give
// identical results, which tests prove by forcing each.
#pragma once

#include <string>
#include <vector>

namespace sluice::compress {

// Names of the sets that this machine has, best first, e.g. AVX3_ZEN4, AVX3, AVX2, SSE4, EMU128
// (portable code).
std::vector<std::string> SimdTargets();

// All kernels use `target` from now on, one of SimdTargets(); empty: the best again. For tests and
// benches: not while another thread runs a kernel.
void ForceSimdTarget(const std::string& target);

}  // namespace sluice::compress
