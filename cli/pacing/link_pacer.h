// LinkPacer: gives each process of a run a link of a given rate, in user space and without root: an
// HTTP CONNECT proxy on loopback, one listening port per process, that meters both directions of
// every process. Bytes from process i to process j pass i's outgoing and j's incoming bucket.
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

// Runs one thread. Its functions may be called from any thread.
class LinkPacer {
 public:
  // More connections than this are closed as they come.
  static constexpr size_t kTunnelsMax = 4096;

  // One process per entry: the port it will listen on, or 0 if it only dials. Tunnels lead to these
  // ports and nowhere else.
  static absl::StatusOr<std::unique_ptr<LinkPacer>> Start(double bits_per_second,
                                                          absl::Span<const uint16_t> listens_on,
                                                          const Clock* clock);
  ~LinkPacer();
  LinkPacer(const LinkPacer&) = delete;
  LinkPacer& operator=(const LinkPacer&) = delete;

  // The proxy's port on 127.0.0.1 for what process `process` dials.
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
  // Sleeps until something can move.
  void Poll();
  PacedLink* FindLink(uint16_t port);

  const Clock* const clock_;
  std::vector<Process> processes_;
  std::vector<std::unique_ptr<PacedTunnel>> tunnels_;  // The thread's own.
  size_t first_ = 0;  // Whose turn it is to be first at the buckets.
  int stop_event_ = -1;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice::cli
