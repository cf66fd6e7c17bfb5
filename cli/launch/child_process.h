// ChildProcess: a program we started, in a process group of its own, with what it prints kept.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {

struct ChildOptions {
  std::string name;                      // "worker 2", for messages.
  std::vector<std::string> command;      // [0] is the program's path.
  std::vector<std::string> environment;  // NAME=value; the whole of it.
  std::string log_path;                  // Gets standard output and error of the child.
  bool append_log = false;               // To what an earlier start wrote there.
  size_t kept_lines = 12;                // The last ones stay in memory, each up to kLineMax.
  uint64_t log_bytes_max =
      64 << 20;  // Of the whole file; what comes after it is dropped, with a line that says so.
  bool input = false;  // Its standard input is ours to write to; else /dev/null.
  // Called by ReadOutput and Reap with each whole line as it comes, up to kLineMax of it; or empty.
  std::function<void(absl::string_view line)> on_line;
};

// Not thread-safe. Start children on a thread that outlives them (the main one): the kernel kills a
// child when the thread that started it ends, however that comes about. That is how nothing
// survives a kill -9 of its parent.
class ChildProcess {
 public:
  static constexpr size_t kLineMax = 2000;

  // Errors name the program: it cannot be executed, its log cannot be written.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);
  // Kills the group if it has not ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log_path() const { return options_.log_path; }
  pid_t pid() const { return pid_; }

  // To poll for reading; -1 once everything was read.
  int output_fd() const { return output_fd_; }
  // Takes what is there; does not block.
  void ReadOutput();
  std::vector<std::string> LastLines() const;

  // To its standard input, with `input`; does not block. UNAVAILABLE: it does not read it any more,
  // or not as fast as that.
  absl::Status Write(absl::string_view text);

  // Sees whether it has ended; does not block. When it has, whatever is left of its group is
  // killed.
  bool Reap();
  // As waitpid gives it, once Reap said so.
  std::optional<int> wait_status() const { return wait_status_; }

  // To its whole group. Nothing once it has ended.
  void Signal(int signal);

 private:
  ChildProcess(const ChildOptions& options, pid_t pid, int output_fd, int input_fd, std::FILE* log,
               uint64_t log_bytes)
      : options_(options),
        pid_(pid),
        output_fd_(output_fd),
        input_fd_(input_fd),
        log_(log),
        log_bytes_(log_bytes) {}

  void Keep(absl::string_view text);
  void EndLine();
  void CloseOutput();

  const ChildOptions options_;
  const pid_t pid_;
  int output_fd_;
  int input_fd_;  // A socket, whose writers no signal ends; -1: none.
  std::FILE* log_;
  uint64_t log_bytes_;
  std::deque<std::string> lines_;
  std::string open_line_;
  std::optional<int> wait_status_;
};

// As a shell counts: the exit code, or 128 + the signal.
int ExitCode(int wait_status);

// "exited with code 3", "was killed by signal 9 (Killed)".
std::string DescribeEnd(int wait_status);

}  // namespace sluice::cli
