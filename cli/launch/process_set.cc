// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/process_set.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace sluice::cli {
namespace {

// Normally, ProcessSet notices the end of a process when its output closes. If another process
// holds the pipe open, ProcessSet notices the end within this interval.
constexpr absl::Duration kLongestSleep = absl::Milliseconds(100);

}  // namespace

absl::Status ProcessSet::Start(Role role, const ChildOptions& options) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(options);
  if (!child.ok()) return child.status();
  children_.push_back(*std::move(child));
  roles_.push_back(role);
  options_.push_back(options);
  reported_.push_back(false);
  start_at_.push_back(absl::InfiniteFuture());
  return absl::OkStatus();
}

void ProcessSet::StartAgainAt(const ChildProcess& ended, absl::Time when) {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].get() == &ended && reported_[i] && !ending()) start_at_[i] = when;
  }
}

absl::Status ProcessSet::StartDue() {
  const absl::Time now = clock_->Now();
  for (size_t i = 0; i < children_.size(); ++i) {
    if (now < start_at_[i]) continue;
    start_at_[i] = absl::InfiniteFuture();
    options_[i].append_log = true;
    absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(options_[i]);
    if (!child.ok()) return child.status();
    children_[i] = *std::move(child);
    reported_[i] = false;
  }
  return absl::OkStatus();
}

void ProcessSet::ForgetStarts() {
  std::fill(start_at_.begin(), start_at_.end(), absl::InfiniteFuture());
}

std::vector<const ChildProcess*> ProcessSet::Wait(absl::Duration timeout, int other_fd) {
  std::vector<pollfd> fds;
  if (other_fd >= 0) fds.push_back({other_fd, POLLIN, 0});
  for (const std::unique_ptr<ChildProcess>& child : children_) {
    if (child->output_fd() >= 0) fds.push_back({child->output_fd(), POLLIN, 0});
  }
  const absl::Duration sleep = std::clamp(timeout, absl::ZeroDuration(), kLongestSleep);
  ::poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(sleep)));
  if (clock_->Now() >= kill_at_) KillAll();
  std::vector<const ChildProcess*> ended;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (reported_[i]) continue;
    children_[i]->ReadOutput();
    if (!children_[i]->Reap()) continue;
    reported_[i] = true;
    ended.push_back(children_[i].get());
  }
  return ended;
}

void ProcessSet::BeginEnd() {
  if (ending()) return;
  ForgetStarts();
  kill_at_ = clock_->Now() + grace_;
  for (const std::unique_ptr<ChildProcess>& child : children_) child->Signal(SIGTERM);
}

void ProcessSet::KillAll() {
  ForgetStarts();
  kill_at_ = std::min(kill_at_, clock_->Now());
  for (const std::unique_ptr<ChildProcess>& child : children_) child->Signal(SIGKILL);
}

bool ProcessSet::AllEnded() const { return AllEnded(Role::kServer) && AllEnded(Role::kWorker); }

bool ProcessSet::AllEnded(Role role) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    const bool ended = reported_[i] && start_at_[i] == absl::InfiniteFuture();
    if (roles_[i] == role && !ended) return false;
  }
  return true;
}

bool ProcessSet::AllEndedWell(Role role) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (roles_[i] == role && children_[i]->wait_status() != 0) return false;
  }
  return AllEnded(role);
}

bool ProcessSet::IsWorker(const ChildProcess& child) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].get() == &child) return roles_[i] == Role::kWorker;
  }
  return false;
}

}  // namespace sluice::cli
