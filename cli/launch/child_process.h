// SPDX-License-Identifier: Apache-2.0
// ChildProcess: a program that runs in a separate process group. Its last lines of output are kept.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/launch/group_guard.h"

namespace sluice::cli {

struct ChildOptions {
  std::string name;                      // For messages, for example "worker 2".
  std::vector<std::string> command;      // The first item is the path of the program.
  std::vector<std::string> environment;  // The complete environment as NAME=value.
  std::string log_path;                  // Receives the child's standard output and error.
  bool append_log = false;  // If true, output is appended to the log of an earlier start.
  // Number of last lines that are kept in memory. Each line is cut to kLineMax.
  size_t kept_lines = 12;
  // Maximum size of the log file. Further output is dropped, and the last line says so.
  uint64_t log_bytes_max = 64 << 20;
  // If true, the caller can write to the child's standard input. Otherwise the input is /dev/null.
  bool input = false;
  // If true, processes that the child starts end too when this process ends for any reason. The
  // kernel ends only the child itself.
  bool guard_group = false;
  // ReadOutput and Reap call this function with each complete line, cut to kLineMax. May be empty.
  std::function<void(absl::string_view line)> on_line;
};

// Not thread-safe. Start children on a thread that outlives them, such as the main thread. The
// kernel kills a child when the thread that started it ends for any reason, so a child does not
// survive a kill -9 of its parent.
class ChildProcess {
 public:
  static constexpr size_t kLineMax = 2000;

  // Fails if the program cannot be executed or its log cannot be written. The message names the
  // program.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);
  // Kills the process group if the child has not ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log_path() const { return options_.log_path; }
  pid_t pid() const { return pid_; }

  // A descriptor to poll for reading. -1 after the end of the output.
  int output_fd() const { return output_fd_; }
  // Reads the available output. Does not block.
  void ReadOutput();
  std::vector<std::string> LastLines() const;

  // Writes to the child's standard input; requires `input`. Does not block. Fails with UNAVAILABLE
  // if the child no longer reads its input, or reads it too slowly.
  absl::Status Write(absl::string_view text);

  // Returns true if the child has ended; in that case, kills the rest of its group. Does not block.
  bool Reap();
  // The status from waitpid. Set after Reap has returned true.
  std::optional<int> wait_status() const { return wait_status_; }

  // Sends a signal to the child's whole group. Does nothing after the child has ended.
  void Signal(int signal);

 private:
  ChildProcess(const ChildOptions& options, pid_t pid, int output_fd, int input_fd, std::FILE* log,
               uint64_t log_bytes, GroupGuard guard)
      : options_(options),
        pid_(pid),
        guard_(std::move(guard)),
        output_fd_(output_fd),
        input_fd_(input_fd),
        log_(log),
        log_bytes_(log_bytes) {}

  void Keep(absl::string_view text);
  void EndLine();
  void CloseOutput();

  const ChildOptions options_;
  const pid_t pid_;
  GroupGuard guard_;
  int output_fd_;
  int input_fd_;  // A socket, so that a failed write causes no signal. -1 if `input` is false.
  std::FILE* log_;
  uint64_t log_bytes_;
  std::deque<std::string> lines_;
  std::string open_line_;
  bool redraws_ = false;  // The next character replaces the open line, as on a terminal.
  std::optional<int> wait_status_;
};

// Returns the exit code that a shell would report: the exit code of the process, or 128 + the
// signal.
int ExitCode(int wait_status);

// Returns, for example, "exited with code 3" or "was killed by signal 9 (Killed)".
std::string DescribeEnd(int wait_status);

}  // namespace sluice::cli
