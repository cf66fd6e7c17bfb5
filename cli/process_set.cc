#include "cli/process_set.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace sluice {
namespace {

// An end shows as the closing of the output; one that comes without it (something else holds the
// pipe) is seen at this interval.
constexpr absl::Duration kLongestSleep = absl::Milliseconds(100);

}  // namespace

absl::Status ProcessSet::Start(Role role, const ChildOptions& options) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(options);
  if (!child.ok()) return child.status();
  children_.push_back(*std::move(child));
  roles_.push_back(role);
  reported_.push_back(false);
  return absl::OkStatus();
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
  kill_at_ = clock_->Now() + grace_;
  for (const std::unique_ptr<ChildProcess>& child : children_) child->Signal(SIGTERM);
}

void ProcessSet::KillAll() {
  kill_at_ = std::min(kill_at_, clock_->Now());
  for (const std::unique_ptr<ChildProcess>& child : children_) child->Signal(SIGKILL);
}

bool ProcessSet::AllEnded() const { return AllEnded(Role::kServer) && AllEnded(Role::kWorker); }

bool ProcessSet::AllEnded(Role role) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (roles_[i] == role && !reported_[i]) return false;
  }
  return true;
}

bool ProcessSet::IsWorker(const ChildProcess& child) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].get() == &child) return roles_[i] == Role::kWorker;
  }
  return false;
}

}  // namespace sluice
