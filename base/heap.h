// The C library's heap, for programs that take and let go of much memory in each step.
#pragma once

namespace sluice {

// From here on memory that was let go of is kept for the next who asks, up to some hundred
// megabytes, in place of giving it back to the system: there it costs a page fault for every 4 KiB
// to have it again. Of the whole process, so for the start of main.
void KeepFreedMemory();

}  // namespace sluice
