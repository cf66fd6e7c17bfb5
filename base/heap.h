// SPDX-License-Identifier: Apache-2.0
// Settings of the C library's heap for programs that allocate and free a lot of memory in every
// step.
#pragma once

namespace sluice {

// Makes the heap keep freed memory for later allocations, up to a few hundred megabytes, instead of
// returning it to the system. Returned memory costs a page fault for every 4 KiB when the program
// uses it again. Limits the heap to one arena for each core (at least two), because each arena
// keeps its own freed memory: with glibc's eight per core, a long run grows for hours. The setting
// applies to the whole process: call this function at the start of main.
void KeepFreedMemory();

}  // namespace sluice
