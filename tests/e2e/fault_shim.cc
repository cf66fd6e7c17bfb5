// SPDX-License-Identifier: Apache-2.0
// This library is preloaded (LD_PRELOAD) into one process of a test. It makes the process's disk
// slow, full or broken, or its wall clock wrong. A test changes both while the process runs, by
// writing two files that the environment names:
//
//   SLUICE_SHIM_RULES=FILE  lines `OPERATION TEXT ACTION`
//   SLUICE_SHIM_CLOCK=FILE  the wall clock's error in seconds, with a sign
//
// A rule applies to paths that contain TEXT. The first matching rule counts.
//
// OPERATION is open-read, open-write, create, write, fsync, rename, link or unlink. A rename or a
// link is matched by its new name. An open with O_CREAT is a create.
//
// ACTION is `fail ERROR [COUNT]` (ENOSPC, EIO, EMFILE, ESTALE, EACCES, ENOENT), `delay SECONDS
// [COUNT]`, or `stop [COUNT]`, which sends SIGSTOP to the process before the operation. COUNT
// limits how often a rule applies.
//
// Each applied rule prints a line on stderr, so that tests can wait for the line.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Rule {
  std::string line;
  std::string operation;
  std::string text;
  std::string action;
  int error = 0;
  double seconds = 0;
  int count = -1;  // No limit.
};

// Reads a file with direct system calls, which the functions below do not intercept.
std::string Contents(const char* path) {
  std::string contents;
  const long file = ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return contents;
  char piece[4096];
  for (long size; (size = ::syscall(SYS_read, file, piece, sizeof(piece))) > 0;) {
    contents.append(piece, static_cast<size_t>(size));
  }
  ::syscall(SYS_close, file);
  return contents;
}

int ErrorNumber(const std::string& name) {
  static const std::map<std::string, int> errors = {{"ENOSPC", ENOSPC}, {"EIO", EIO},
                                                    {"EMFILE", EMFILE}, {"ESTALE", ESTALE},
                                                    {"EACCES", EACCES}, {"ENOENT", ENOENT}};
  const auto found = errors.find(name);
  return found == errors.end() ? EIO : found->second;
}

Rule ParseRule(const std::string& line) {
  Rule rule;
  rule.line = line;
  std::istringstream words(line);
  words >> rule.operation >> rule.text >> rule.action;
  if (rule.action == "fail") {
    std::string error;
    words >> error;
    rule.error = ErrorNumber(error);
  } else if (rule.action == "delay") {
    words >> rule.seconds;
  }
  words >> rule.count;
  if (words.fail()) rule.count = -1;
  return rule;
}

class Rules {
 public:
  // Gets the first rule that applies and counts its use. Returns false if no rule applies.
  bool Take(const char* operation, const char* path, Rule* taken) {
    static const char* const file = std::getenv("SLUICE_SHIM_RULES");
    if (file == nullptr || path == nullptr) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    Reload(file);
    for (const Rule& rule : rules_) {
      if (rule.operation != operation || std::strstr(path, rule.text.c_str()) == nullptr) continue;
      if (rule.count >= 0 && applied_[rule.line] >= rule.count) continue;
      ++applied_[rule.line];
      *taken = rule;
      return true;
    }
    return false;
  }

 private:
  void Reload(const char* file) {
    const std::string contents = Contents(file);
    if (contents == contents_) return;
    contents_ = contents;
    rules_.clear();
    std::istringstream lines(contents);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) rules_.push_back(ParseRule(line));
    }
  }

  std::mutex mutex_;
  std::string contents_;
  std::vector<Rule> rules_;
  std::map<std::string, int> applied_;  // By line, so that counts survive changes of other lines.
};

Rules& TheRules() {
  static Rules* const rules = new Rules;  // Threads may still use it while the process exits.
  return *rules;
}

// Returns false, with errno set, if the operation must fail.
bool Allowed(const char* operation, const char* path) {
  Rule rule;
  if (!TheRules().Take(operation, path, &rule)) return true;
  const std::string line = "fault_shim: " + rule.line + " at " + path + "\n";
  ::syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
  if (rule.action == "stop") {
    ::raise(SIGSTOP);
  } else if (rule.action == "delay") {
    const timespec pause = {
        static_cast<time_t>(rule.seconds),
        static_cast<long>(1e9 * (rule.seconds - static_cast<time_t>(rule.seconds)))};
    ::nanosleep(&pause, nullptr);
  } else if (rule.action == "fail") {
    errno = rule.error;
    return false;
  }
  return true;
}

bool OpenAllowed(const char* path, int flags) {
  if ((flags & O_CREAT) != 0) return Allowed("create", path);
  return Allowed((flags & O_ACCMODE) == O_RDONLY ? "open-read" : "open-write", path);
}

bool DescriptorAllowed(const char* operation, int descriptor) {
  static const char* const file = std::getenv("SLUICE_SHIM_RULES");
  if (file == nullptr) return true;
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const long size = ::syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof(path) - 1);
  if (size <= 0 || path[0] != '/') return true;
  path[size] = '\0';
  return Allowed(operation, path);
}

time_t ClockOffset() {
  static const char* const file = std::getenv("SLUICE_SHIM_CLOCK");
  return file == nullptr ? 0 : static_cast<time_t>(std::atoll(Contents(file).c_str()));
}

// Converts a deadline computed from the wrong clock to the kernel's clock.
timespec TrueDeadline(const timespec& deadline) {
  // A monotonic clock is below this value, and the wall clock is above it.
  constexpr time_t kNoUptime = 500'000'000;
  timespec result = deadline;
  if (deadline.tv_sec > kNoUptime) result.tv_sec -= ClockOffset();
  return result;
}

template <typename Function>
Function* Next(Function* /*same type*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const next = Next<int(const char*, int, ...)>(nullptr, "open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return OpenAllowed(path, flags) ? next(path, flags, mode) : -1;
}

int open64(const char* path, int flags, ...) {
  static auto* const next = Next<int(const char*, int, ...)>(nullptr, "open64");
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return OpenAllowed(path, flags) ? next(path, flags, mode) : -1;
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>(nullptr, "write");
  return DescriptorAllowed("write", descriptor) ? next(descriptor, bytes, size) : -1;
}

int fsync(int descriptor) {
  static auto* const next = Next<int(int)>(nullptr, "fsync");
  return DescriptorAllowed("fsync", descriptor) ? next(descriptor) : -1;
}

int rename(const char* from, const char* to) noexcept {
  static auto* const next = Next<int(const char*, const char*)>(nullptr, "rename");
  return Allowed("rename", to) ? next(from, to) : -1;
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  static auto* const next =
      Next<int(int, const char*, int, const char*, unsigned)>(nullptr, "renameat2");
  return Allowed("rename", to) ? next(from_folder, from, to_folder, to, flags) : -1;
}

int link(const char* from, const char* to) noexcept {
  static auto* const next = Next<int(const char*, const char*)>(nullptr, "link");
  return Allowed("link", to) ? next(from, to) : -1;
}

int unlink(const char* path) noexcept {
  static auto* const next = Next<int(const char*)>(nullptr, "unlink");
  return Allowed("unlink", path) ? next(path) : -1;
}

int clock_gettime(clockid_t id, timespec* now) noexcept {
  static auto* const next = Next<int(clockid_t, timespec*)>(nullptr, "clock_gettime");
  const int result = next(id, now);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
    now->tv_sec += ClockOffset();
  return result;
}

int gettimeofday(timeval* now, void* zone) noexcept {
  static auto* const next = Next<int(timeval*, void*)>(nullptr, "gettimeofday");
  const int result = next(now, zone);
  if (result == 0) now->tv_sec += ClockOffset();
  return result;
}

time_t time(time_t* now) noexcept {
  static auto* const next = Next<time_t(time_t*)>(nullptr, "time");
  const time_t result = next(nullptr) + ClockOffset();
  if (now != nullptr) *now = result;
  return result;
}

// If the real clock were stepped, the kernel would move the deadlines of waits too. This clock is
// only shifted for the process, so this function moves the deadlines.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  static auto* const next = Next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>(
      nullptr, "pthread_cond_timedwait");
  const timespec moved = TrueDeadline(*deadline);
  return next(condition, mutex, &moved);
}

long syscall(long number, ...) noexcept {
  static auto* const next = Next<long(long, ...)>(nullptr, "syscall");
  long arguments[6];
  va_list more;
  va_start(more, number);
  for (long& argument : arguments) argument = va_arg(more, long);
  va_end(more);
  timespec moved;
  const auto* deadline = reinterpret_cast<const timespec*>(arguments[3]);
  if (number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 && deadline != nullptr) {
    moved = TrueDeadline(*deadline);
    arguments[3] = reinterpret_cast<long>(&moved);
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

}  // extern "C"
