// Whether tests of averages and of long runs are cut short, as they are in debug builds and under
// sanitizers: there they look for crashes, and what only many steps can show is left to release
// builds. CONTRIBUTING.md says which entries differ.
#pragma once

namespace sluice::compress {

inline constexpr bool kShortRuns = SLUICE_SHORT_RUNS;

}  // namespace sluice::compress
