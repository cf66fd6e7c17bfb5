// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

absl::Status SystemError(int error, const ChildOptions& options, absl::string_view what) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", options.name, ": ", what));
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct ChildSide {
  char* const* arguments;
  char* const* environment;
  int input;  // -1 if ChildOptions::input is false.
  int output;
  int failure;  // Receives errno if exec fails. A successful exec closes it.
  pid_t parent;
};

// Makes only system calls. Other threads may hold locks at the fork, and nothing releases these
// locks in the child.
[[noreturn]] void Become(const ChildSide& side) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != side.parent) ::_exit(1);  // The parent ended before prctl took effect.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = side.input >= 0 ? side.input : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input >= 0) ::dup2(input, STDIN_FILENO);
  if (::dup2(side.output, STDOUT_FILENO) >= 0 && ::dup2(side.output, STDERR_FILENO) >= 0) {
    ::execve(side.arguments[0], side.arguments, side.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(side.failure, &error, sizeof(error));
  ::_exit(127);
}

void Close(int* fd) {
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
}

// In each pair, the parent's end is at [0] and the child's end at [1]. The destructor closes the
// ends that are still open.
struct ChildPipes {
  std::array<int, 2> input = {-1, -1};
  std::array<int, 2> output = {-1, -1};
  std::array<int, 2> failure = {-1, -1};

  // Returns no value on failure, and errno is set.
  static std::optional<ChildPipes> Make(bool with_input) {
    ChildPipes pipes;
    if (::pipe2(pipes.output.data(), O_CLOEXEC) != 0) return std::nullopt;
    if (::pipe2(pipes.failure.data(), O_CLOEXEC) != 0) return std::nullopt;
    if (with_input &&
        ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipes.input.data()) != 0) {
      return std::nullopt;
    }
    return pipes;
  }
  ChildPipes() = default;
  ChildPipes(ChildPipes&& other) noexcept
      : input(std::exchange(other.input, {-1, -1})),
        output(std::exchange(other.output, {-1, -1})),
        failure(std::exchange(other.failure, {-1, -1})) {}
  ChildPipes& operator=(ChildPipes&&) = delete;
  ~ChildPipes() {
    const int error = errno;
    for (std::array<int, 2>* const ends : {&input, &output, &failure}) {
      for (int& end : *ends) Close(&end);
    }
    errno = error;
  }
};

// Returns errno of a failed exec. Returns 0 if exec succeeded.
int ReadFailure(int fd) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : 0;
}

// A log may quote a script's data, so only the owner and the group may read it. Returns nullptr and
// sets errno on failure.
std::FILE* OpenLog(const ChildOptions& options) {
  const int mode = options.append_log ? O_APPEND : O_TRUNC;
  const int file = ::open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0640);
  if (file < 0) return nullptr;
  std::FILE* const log = ::fdopen(file, options.append_log ? "a" : "w");
  if (log == nullptr) {
    const int error = errno;
    ::close(file);
    errno = error;
  }
  return log;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  std::FILE* log = OpenLog(options);
  if (log == nullptr) {
    return SystemError(errno, options, absl::StrCat("cannot write its log ", options.log_path));
  }
  std::fseek(log, 0, SEEK_END);
  const uint64_t log_bytes = std::max<int64_t>(std::ftell(log), 0);
  std::optional<ChildPipes> pipes = ChildPipes::Make(options.input);
  if (!pipes.has_value()) {
    const int error = errno;
    std::fclose(log);
    return SystemError(error, options, "no pipe");
  }
  const std::vector<char*> arguments = Pointers(options.command);
  const std::vector<char*> environment = Pointers(options.environment);
  const ChildSide side{.arguments = arguments.data(),
                       .environment = environment.data(),
                       .input = pipes->input[1],
                       .output = pipes->output[1],
                       .failure = pipes->failure[1],
                       .parent = ::getpid()};
  const pid_t pid = ::fork();
  if (pid == 0) Become(side);
  const int fork_error = pid < 0 ? errno : 0;
  for (int* const end : {&pipes->input[1], &pipes->output[1], &pipes->failure[1]}) Close(end);
  const int error = fork_error != 0 ? fork_error : ReadFailure(pipes->failure[0]);
  if (error != 0) {
    if (pid > 0) ::waitpid(pid, nullptr, 0);
    std::fclose(log);
    return SystemError(error, options, options.command[0]);
  }
  ::fcntl(pipes->output[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<ChildProcess>(new ChildProcess(
      options, pid, std::exchange(pipes->output[0], -1), std::exchange(pipes->input[0], -1), log,
      log_bytes, options.guard_group ? GroupGuard(pid) : GroupGuard()));
}

ChildProcess::~ChildProcess() {
  if (!wait_status_.has_value()) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  CloseOutput();
  Close(&input_fd_);
  std::fclose(log_);
}

void ChildProcess::CloseOutput() { Close(&output_fd_); }

absl::Status ChildProcess::Write(absl::string_view text) {
  const ssize_t sent = ::send(input_fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      options_.name,
      " does not read its input: ", sent < 0 ? ::strerror(errno) : "too much unread input"));
}

void ChildProcess::ReadOutput() {
  std::array<char, 16384> buffer;
  while (output_fd_ >= 0) {
    const ssize_t got = ::read(output_fd_, buffer.data(), buffer.size());
    if (got > 0) {
      Keep(absl::string_view(buffer.data(), got));
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      CloseOutput();
    } else if (errno == EAGAIN) {
      break;
    }
  }
  std::fflush(log_);
}

void ChildProcess::Keep(absl::string_view text) {
  if (log_bytes_ < options_.log_bytes_max) {
    std::fwrite(text.data(), 1, text.size(), log_);
    log_bytes_ += text.size();
    if (log_bytes_ >= options_.log_bytes_max) {
      const std::string notice =
          absl::StrCat("\n[the log ends here: it reached ", options_.log_bytes_max, " bytes]\n");
      std::fwrite(notice.data(), 1, notice.size(), log_);
    }
  }
  for (const char c : text) {
    if (c == '\n') {
      redraws_ = false;
      EndLine();
    } else if (c == '\r') {
      redraws_ = true;
    } else {
      if (std::exchange(redraws_, false)) open_line_.clear();
      if (open_line_.size() < kLineMax) open_line_.push_back(c);
    }
  }
}

void ChildProcess::EndLine() {
  if (options_.on_line) options_.on_line(open_line_);
  lines_.push_back(std::exchange(open_line_, {}));
  if (lines_.size() > options_.kept_lines) lines_.pop_front();
}

std::vector<std::string> ChildProcess::LastLines() const {
  std::vector<std::string> lines(lines_.begin(), lines_.end());
  if (!open_line_.empty()) lines.push_back(open_line_);
  if (lines.size() > options_.kept_lines) lines.erase(lines.begin());
  return lines;
}

bool ChildProcess::Reap() {
  if (wait_status_.has_value()) return true;
  siginfo_t info{};
  if (::waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return false;
  }
  // Kill before waitpid, because another process may get this process id after waitpid.
  ::kill(-pid_, SIGKILL);
  guard_.End();
  int status = 0;
  if (::waitpid(pid_, &status, 0) != pid_) return false;
  ReadOutput();
  CloseOutput();
  wait_status_ = status;
  return true;
}

void ChildProcess::Signal(int signal) {
  if (!wait_status_.has_value()) ::kill(-pid_, signal);
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", signal, " (", ::strsignal(signal), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

}  // namespace sluice::cli
