// SPDX-License-Identifier: Apache-2.0
#include "base/process_usage.h"

#include <time.h>

#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

int64_t NanosecondsOn(clockid_t clock) {
  timespec used{};
  if (::clock_gettime(clock, &used) != 0) return 0;
  return used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
}

double SecondsOn(clockid_t clock) { return 1e-9 * static_cast<double>(NanosecondsOn(clock)); }

uint64_t PeakRss(const std::string& process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "VmHWM:")) continue;
    absl::ConsumeSuffix(&rest, " kB");
    uint64_t kib = 0;
    return absl::SimpleAtoi(rest, &kib) ? kib * 1024 : 0;
  }
  return 0;
}

}  // namespace

double CpuSecondsOf(pid_t pid) {
  clockid_t clock = 0;
  return ::clock_getcpuclockid(pid, &clock) == 0 ? SecondsOn(clock) : 0;
}

double CpuSecondsOfThisProcess() { return SecondsOn(CLOCK_PROCESS_CPUTIME_ID); }

int64_t CpuNanosecondsOfThisThread() { return NanosecondsOn(CLOCK_THREAD_CPUTIME_ID); }

uint64_t PeakRssOf(pid_t pid) { return PeakRss(absl::StrCat(pid)); }

uint64_t PeakRssOfThisProcess() { return PeakRss("self"); }

}  // namespace sluice
