// SPDX-License-Identifier: Apache-2.0
#include "app/signal_watch.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "app/exit_codes.h"

namespace sluice::app {
namespace {

sigset_t StopSignalSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSignalSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalWatch::SignalWatch(std::function<void(int)> on_signal, absl::Duration grace)
    : on_signal_(std::move(on_signal)), grace_(grace), thread_([this] { Watch(); }) {}

SignalWatch::~SignalWatch() {
  done_ = true;
  // The signal is blocked, so its only effect is to wake sigwait.
  pthread_kill(thread_.native_handle(), SIGINT);
  thread_.join();
}

void SignalWatch::Watch() {
  const sigset_t set = StopSignalSet();
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
  if (done_) return;
  received_ = signal;
  on_signal_(signal);
  const timespec grace = absl::ToTimespec(grace_);
  sigtimedwait(&set, nullptr, &grace);
  if (!done_) _exit(kExitSignal + signal);
}

}  // namespace sluice::app
