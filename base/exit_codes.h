// Exit codes that a supervisor acts on; the others are in each program's --help.
#pragma once

namespace sluice {

// The program's part was in order, but it lost the others and gave up waiting for them: in a job
// with checkpoints it is to be started again. (EX_TEMPFAIL of sysexits.h.)
inline constexpr int kExitLostPeers = 75;

}  // namespace sluice
