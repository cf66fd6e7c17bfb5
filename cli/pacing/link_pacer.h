// SPDX-License-Identifier: Apache-2.0
// LinkPacer: simulates a link of a given rate for each process of a run, in user space and without
// root. The pacer is an HTTP CONNECT proxy on loopback with one listening port per process. It
// limits both directions of each process. Bytes from process i to process j use the outgoing bucket
// of i and the incoming bucket of j.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "cli/pacing/paced_tunnel.h"

namespace sluice::cli {

// Runs one thread. All functions may be called from any thread.
class LinkPacer {
 public:
  // Further connections are closed immediately.
  static constexpr size_t kTunnelsMax = 4096;

  // `listens_on` has one entry per process: the port that the process will listen on, or 0 if it
  // only connects to others. Tunnels lead only to these ports.
  static absl::StatusOr<std::unique_ptr<LinkPacer>> Start(double bits_per_second,
                                                          absl::Span<const uint16_t> listens_on,
                                                          const Clock* clock);
  ~LinkPacer();
  LinkPacer(const LinkPacer&) = delete;
  LinkPacer& operator=(const LinkPacer&) = delete;

  // Returns the port of the proxy on 127.0.0.1 for the outgoing connections of `process`.
  uint16_t proxy_port(size_t process) const { return processes_[process].proxy_port; }

 private:
  struct Process {
    uint16_t listens_on = 0;
    int listener = -1;
    uint16_t proxy_port = 0;
    PacedLink link;
  };

  explicit LinkPacer(const Clock* clock) : clock_(clock) {}

  void Loop();
  void Accept(Process* process);
  // Sleeps until bytes can move.
  void Poll();
  PacedLink* FindLink(uint16_t port);

  const Clock* const clock_;
  std::vector<Process> processes_;
  std::vector<std::unique_ptr<PacedTunnel>> tunnels_;  // Only thread_ uses the tunnels.
  size_t first_ = 0;  // Index of the first tunnel to use the buckets in this turn.
  int stop_event_ = -1;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice::cli
