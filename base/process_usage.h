// What a process or thread on this machine has used: processor time and memory, as the kernel
// counts them.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace sluice {

// Of all threads, ended ones too, in user and kernel mode; 0 if it is not there any more.
double CpuSecondsOf(pid_t pid);
double CpuSecondsOfThisProcess();
// A call of the kernel, half a microsecond.
int64_t CpuNanosecondsOfThisThread();

// Most that was resident at any time; 0 if it is not there any more.
uint64_t PeakRssOf(pid_t pid);
uint64_t PeakRssOfThisProcess();

}  // namespace sluice
