// SPDX-License-Identifier: Apache-2.0
// True if tests of averages and of long runs are shortened, as in debug builds and under
// sanitizers. These builds only look for crashes; release builds check the results that need many
// steps. CONTRIBUTING.md lists the affected entries.
#pragma once

namespace sluice::compress {

inline constexpr bool kShortRuns = SLUICE_SHORT_RUNS;

}  // namespace sluice::compress
