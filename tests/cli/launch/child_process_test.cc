// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "cli/launch/process_set.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildProcessTest() {
    std::string folder = ::testing::TempDir() + "/child-XXXXXX";
    folder_ = ::mkdtemp(folder.data());
  }
  ~ChildProcessTest() override { std::filesystem::remove_all(folder_); }

  ChildOptions Shell(const std::string& script) const {
    ChildOptions options;
    options.name = "child";
    options.command = {"/bin/sh", "-c", script};
    options.environment = {"PATH=/usr/bin:/bin", "GREETING=hello"};
    options.log_path = folder_ + "/log";
    return options;
  }
  std::string Log() const {
    std::ifstream file(folder_ + "/log");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void WaitForEnd(ChildProcess* child) {
    while (!child->Reap()) {
      pollfd fd{child->output_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
      child->ReadOutput();
    }
  }
  static std::string WaitForLine(ChildProcess* child) {
    while (child->LastLines().empty() && !child->Reap()) {
      pollfd fd{child->output_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
      child->ReadOutput();
    }
    const std::vector<std::string> lines = child->LastLines();
    return lines.empty() ? "" : lines[0];
  }
  // Waits until the process has ended. It may remain a zombie until its new parent reaps it, so a
  // zombie counts as ended.
  static void WaitUntilGone(pid_t pid) {
    while (::kill(pid, 0) == 0) {
      std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
      std::string id, name, state;
      file >> id >> name >> state;
      if (state == "Z" || state.empty()) return;
      ::poll(nullptr, 0, 5);
    }
  }
  // Starts a child in a launcher process and kills the launcher. Then the process that `pid_of`
  // names must end.
  static void ExpectEndsWithItsLauncher(const ChildOptions& options,
                                        const std::function<pid_t(ChildProcess* child)>& pid_of) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      auto child = ChildProcess::Start(options);
      const pid_t pid = child.ok() ? pid_of(child->get()) : 0;
      [[maybe_unused]] const ssize_t written = ::write(pipe[1], &pid, sizeof(pid));
      while (true) ::pause();
    }
    pid_t pid = 0;
    ASSERT_EQ(::read(pipe[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
    for (const int fd : pipe) ::close(fd);
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, 0), 0);
    ::kill(launcher, SIGKILL);
    ::waitpid(launcher, nullptr, 0);
    WaitUntilGone(pid);
  }

  std::string folder_;
};

TEST_F(ChildProcessTest, OtherUsersMayNotReadTheLog) {
  const mode_t mask = ::umask(0);
  auto child = ChildProcess::Start(Shell("true"));
  ::umask(mask);
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(child->get());
  EXPECT_EQ(std::filesystem::status(folder_ + "/log").permissions(), std::filesystem::perms(0640));
}

TEST_F(ChildProcessTest, KeepsLastLinesAndWholeLog) {
  ChildOptions options = Shell(
      "i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; echo to-stderr >&2; "
      "printf \"$GREETING\"; exit 3");
  options.kept_lines = 3;
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(child->get());
  EXPECT_EQ(ExitCode(*(*child)->wait_status()), 3);
  EXPECT_EQ(DescribeEnd(*(*child)->wait_status()), "exited with code 3");
  EXPECT_THAT((*child)->LastLines(), ElementsAre("line 49", "to-stderr", "hello"));
  EXPECT_THAT(Log(), ::testing::HasSubstr("line 0\n"));
  EXPECT_THAT(Log(), ::testing::EndsWith("hello"));
}

TEST_F(ChildProcessTest, ALineThatIsDrawnAgainCountsOnce) {
  auto child = ChildProcess::Start(Shell("printf '10 %%\\r20 %%\\r30 %%\\nnext\\r\\n'"));
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(child->get());
  EXPECT_THAT((*child)->LastLines(), ElementsAre("30 %", "next"));
}

TEST_F(ChildProcessTest, LongLinesAndLogsHaveLimits) {
  ChildOptions options = Shell("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end");
  options.log_bytes_max = 1000;
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(child->get());
  EXPECT_THAT((*child)->LastLines(),
              ElementsAre(SizeIs(ChildProcess::kLineMax), std::string("end")));
  // The log exceeds the limit by at most one read and the notice.
  EXPECT_LT(Log().size(), 1000u + 16384 + 200);
  EXPECT_THAT(Log(), ::testing::Not(::testing::HasSubstr("end\n")));
}

TEST_F(ChildProcessTest, ReadsWhatItIsToldAndIsHeardLineByLine) {
  ChildOptions options = Shell("while read word; do echo heard $word; done; echo no more");
  options.input = true;
  options.kept_lines = 1;
  std::vector<std::string> heard;
  options.on_line = [&heard](absl::string_view line) { heard.emplace_back(line); };
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->Write("one\n").ok());
  EXPECT_EQ(WaitForLine(child->get()), "heard one");
  ASSERT_TRUE((*child)->Write("two\nthr").ok());
  ASSERT_TRUE((*child)->Write("ee\n").ok());
  while (heard.size() < 3) {
    pollfd fd{(*child)->output_fd(), POLLIN, 0};
    ::poll(&fd, 1, 10);
    (*child)->ReadOutput();
  }
  EXPECT_THAT(heard, ElementsAre("heard one", "heard two", "heard three"));
}

TEST_F(ChildProcessTest, TellingOneThatEndedIsAnErrorAndNoSignal) {
  ChildOptions options = Shell("exit 0");
  options.input = true;
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(child->get());
  EXPECT_EQ((*child)->Write("x\n").code(), absl::StatusCode::kUnavailable);
}

TEST_F(ChildProcessTest, TellingOneThatDoesNotReadDoesNotBlock) {
  ChildOptions options = Shell("exec sleep 1000");
  options.input = true;
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  const std::string much(1 << 20, 'x');
  EXPECT_EQ((*child)->Write(much).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ChildProcessTest, SaysWhichSignalKilledIt) {
  auto child = ChildProcess::Start(Shell("kill -9 $$"));
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(child->get());
  EXPECT_EQ(ExitCode(*(*child)->wait_status()), 137);
  EXPECT_EQ(DescribeEnd(*(*child)->wait_status()), "was killed by signal 9 (Killed)");
}

TEST_F(ChildProcessTest, MissingProgramIsAnErrorThatNamesIt) {
  ChildOptions options = Shell("");
  options.command = {folder_ + "/no-such-program"};
  const absl::Status status = ChildProcess::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no-such-program"));
}

TEST_F(ChildProcessTest, SignalReachesTheWholeGroup) {
  // The shell waits for its own child, which must also receive the signal.
  auto child = ChildProcess::Start(Shell("sleep 1000 & echo $!; wait"));
  ASSERT_TRUE(child.ok()) << child.status();
  int grandchild = 0;
  ASSERT_TRUE(absl::SimpleAtoi(WaitForLine(child->get()), &grandchild));
  (*child)->Signal(SIGTERM);
  WaitForEnd(child->get());
  WaitUntilGone(grandchild);
}

TEST_F(ChildProcessTest, WhatAnEndedChildLeftBehindIsKilled) {
  auto child = ChildProcess::Start(Shell("sleep 1000 & echo $!"));
  ASSERT_TRUE(child.ok()) << child.status();
  int grandchild = 0;
  ASSERT_TRUE(absl::SimpleAtoi(WaitForLine(child->get()), &grandchild));
  WaitForEnd(child->get());
  WaitUntilGone(grandchild);
}

TEST_F(ChildProcessTest, DestructionKills) {
  auto child = ChildProcess::Start(Shell("echo here; exec sleep 1000"));
  ASSERT_TRUE(child.ok()) << child.status();
  const pid_t pid = (*child)->pid();
  ASSERT_EQ(WaitForLine(child->get()), "here");
  child->reset();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(ChildProcessTest, ChildDiesWithAParentThatIsKilled) {
  ExpectEndsWithItsLauncher(Shell("sleep 1000"), [](ChildProcess* child) { return child->pid(); });
}

TEST_F(ChildProcessTest, AGuardedGroupDiesWithAParentThatIsKilled) {
  ChildOptions options = Shell("sleep 1000 & echo $!; wait");
  options.guard_group = true;
  ExpectEndsWithItsLauncher(options, [](ChildProcess* child) {
    pid_t pid = 0;
    return absl::SimpleAtoi(WaitForLine(child), &pid) ? pid : 0;
  });
}

TEST_F(ChildProcessTest, AGuardEndsWithItsGroup) {
  ChildOptions options = Shell("exit 3");
  options.guard_group = true;
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  WaitForEnd(child->get());
  EXPECT_EQ(WEXITSTATUS(*(*child)->wait_status()), 3);
  // This process has no child any more.
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

class ProcessSetTest : public ChildProcessTest {
 protected:
  ChildOptions Named(const std::string& name, const std::string& script) const {
    ChildOptions options = Shell(script);
    options.name = name;
    options.log_path = absl::StrCat(folder_, "/", name);
    return options;
  }
  std::vector<std::string> WaitForAll(ProcessSet* set) {
    std::vector<std::string> ended;
    while (!set->AllEnded()) {
      for (const ChildProcess* child : set->Wait(absl::Seconds(1), -1)) {
        ended.push_back(child->name());
      }
    }
    return ended;
  }
  SimulatedClock clock_;
};

TEST_F(ProcessSetTest, EachEndIsToldOnce) {
  ProcessSet set(&clock_);
  ASSERT_TRUE(set.Start(Role::kServer, Named("a", "exit 0")).ok());
  ASSERT_TRUE(set.Start(Role::kWorker, Named("b", "exit 1")).ok());
  EXPECT_THAT(WaitForAll(&set), ::testing::UnorderedElementsAre("a", "b"));
  EXPECT_THAT(set.Wait(absl::ZeroDuration(), -1), IsEmpty());
}

TEST_F(ProcessSetTest, KnowsWhichRoleHasEnded) {
  ProcessSet set(&clock_);
  ASSERT_TRUE(set.Start(Role::kServer, Named("server", "exec sleep 1000")).ok());
  ASSERT_TRUE(set.Start(Role::kWorker, Named("worker", "exit 0")).ok());
  while (!set.AllEnded(Role::kWorker)) set.Wait(absl::Seconds(1), -1);
  EXPECT_FALSE(set.AllEnded(Role::kServer));
  EXPECT_TRUE(set.AllEndedWell(Role::kWorker));
  set.BeginEnd();
  EXPECT_THAT(WaitForAll(&set), ElementsAre("server"));
  EXPECT_FALSE(set.AllEndedWell(Role::kServer));
}

TEST_F(ProcessSetTest, StartsAgainWhenItIsTimeAndGoesOnWithTheLog) {
  ProcessSet set(&clock_);
  const std::string flag = folder_ + "/flag";
  const std::string script =
      absl::StrCat("echo here; [ -e ", flag, " ] && exit 0; touch ", flag, "; kill -9 $$");
  ASSERT_TRUE(set.Start(Role::kWorker, Named("w", script)).ok());
  std::vector<const ChildProcess*> ended;
  while (ended.empty()) ended = set.Wait(absl::Seconds(1), -1);
  const pid_t first = ended[0]->pid();
  EXPECT_EQ(ExitCode(*ended[0]->wait_status()), 137);
  set.StartAgainAt(*ended[0], clock_.Now() + absl::Seconds(2));
  EXPECT_FALSE(set.AllEnded());
  ASSERT_TRUE(set.StartDue().ok());
  EXPECT_EQ(set.children()[0]->pid(), first);
  clock_.Advance(absl::Seconds(2));
  ASSERT_TRUE(set.StartDue().ok());
  EXPECT_NE(set.children()[0]->pid(), first);
  EXPECT_FALSE(set.AllEnded(Role::kWorker));
  EXPECT_THAT(WaitForAll(&set), ElementsAre("w"));
  EXPECT_EQ(set.children().size(), 1u);
  std::ifstream log(folder_ + "/w");
  std::ostringstream text;
  text << log.rdbuf();
  EXPECT_EQ(text.str(), "here\nhere\n");
}

TEST_F(ProcessSetTest, TheLimitOfALogHoldsOverRestarts) {
  ChildOptions options = Shell("head -c 1500 /dev/zero | tr '\\0' x");
  options.log_bytes_max = 1000;
  for (int start = 0; start < 3; ++start) {
    options.append_log = start > 0;
    auto child = ChildProcess::Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    WaitForEnd(child->get());
  }
  EXPECT_LT(Log().size(), 1700u);
}

TEST_F(ProcessSetTest, NothingIsStartedOnceItEnds) {
  ProcessSet set(&clock_);
  ASSERT_TRUE(set.Start(Role::kWorker, Named("w", "exit 1")).ok());
  std::vector<const ChildProcess*> ended;
  while (ended.empty()) ended = set.Wait(absl::Seconds(1), -1);
  set.StartAgainAt(*ended[0], clock_.Now());
  set.BeginEnd();
  EXPECT_TRUE(set.AllEnded());
  set.StartAgainAt(*ended[0], clock_.Now());
  ASSERT_TRUE(set.StartDue().ok());
  EXPECT_TRUE(set.AllEnded());
}

TEST_F(ProcessSetTest, WhoIgnoresSigtermIsKilledAfterTheGraceTime) {
  ProcessSet set(&clock_, absl::Seconds(5));
  const std::string stubborn = "trap '' TERM; echo ready; while true; do sleep 1000; done";
  ASSERT_TRUE(set.Start(Role::kWorker, Named("stubborn", stubborn)).ok());
  const ChildProcess& child = *set.children()[0];
  while (child.LastLines().empty()) set.Wait(absl::Seconds(1), -1);
  set.BeginEnd();
  EXPECT_THAT(set.Wait(absl::Milliseconds(20), -1), IsEmpty());
  clock_.Advance(absl::Seconds(6));
  EXPECT_THAT(WaitForAll(&set), ElementsAre("stubborn"));
  EXPECT_EQ(ExitCode(*child.wait_status()), 137);
}

}  // namespace
}  // namespace sluice::cli
