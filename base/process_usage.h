// SPDX-License-Identifier: Apache-2.0
// Processor time and memory that a process or thread on this machine has used, as the kernel counts
// them.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace sluice {

// Returns the processor time of all threads, including ended ones, in user and kernel mode. Returns
// 0 if the process no longer exists.
double CpuSecondsOf(pid_t pid);
double CpuSecondsOfThisProcess();
// Returns the processor time of the calling thread. Each call enters the kernel, which takes half a
// microsecond.
int64_t CpuNanosecondsOfThisThread();

// Returns the peak resident memory of the process, in bytes. Returns 0 if the process no longer
// exists.
uint64_t PeakRssOf(pid_t pid);
uint64_t PeakRssOfThisProcess();

}  // namespace sluice
