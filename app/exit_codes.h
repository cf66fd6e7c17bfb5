// Exit codes of the programs of a job; each says in its --help what they mean for it.
#pragma once

namespace sluice::app {

inline constexpr int kExitFinished = 0;
inline constexpr int kExitFailed = 1;  // The reason is the last line of the log.
inline constexpr int kExitUsage = 2;   // Wrong flags or job file.
// The program's part was in order, but it lost the others and gave up waiting for them: in a job
// with checkpoints it is to be started again. (EX_TEMPFAIL of sysexits.h.)
inline constexpr int kExitLostPeers = 75;
inline constexpr int kExitSignal = 128;  // Plus the signal's number, as shells do.

}  // namespace sluice::app
