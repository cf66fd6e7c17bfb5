// SPDX-License-Identifier: Apache-2.0
// Exit codes shared by the programs of a job. Each program's --help text explains the codes that it
// uses.
#pragma once

namespace sluice::app {

inline constexpr int kExitFinished = 0;
inline constexpr int kExitFailed = 1;  // The last line of the log gives the reason.
inline constexpr int kExitUsage = 2;   // The flags or the job file are invalid.
// The program itself worked, but it lost its peers and gave up waiting for them. If the job has
// checkpoints, start the program again. (EX_TEMPFAIL of sysexits.h.)
inline constexpr int kExitLostPeers = 75;
inline constexpr int kExitSignal = 128;  // Plus the signal's number, as in shells.

}  // namespace sluice::app
