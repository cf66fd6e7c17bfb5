// SPDX-License-Identifier: Apache-2.0
// ConnectionAcceptor: accepts the connections to a gRPC port within the limits of a
// ConnectionTable, and gives them to gRPC. gRPC's own listener has no limits, and it stops
// accepting permanently when the process runs out of file descriptors (gRPC before 1.53.2). This
// class does not depend on gRPC: it passes each socket to a function (a taker). Thread-safe. One
// thread accepts and ends connections and never blocks. In addition, each taker has a thread that
// calls it. A call may take a long time, because gRPC also reads the connection's data in it.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "net/listener.h"
#include "server/rpc/connection_table.h"

namespace sluice::server {

class ConnectionAcceptor {
 public:
  using GiveAway = std::function<void(int fd)>;  // The callee owns the socket and closes it.

  // Takes ownership of `listeners`. A connection ends when sent data stays unacknowledged for
  // `unheard`.
  ConnectionAcceptor(std::vector<net::Listener> listeners, const ConnectionLimits& limits,
                     std::chrono::milliseconds unheard, const Logger& logger);
  ~ConnectionAcceptor() { Stop(); }
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // Calls each of `takers` on a separate thread.
  void Start(std::vector<GiveAway> takers);
  // After Stop returns, the acceptor passes on no sockets, listens on no port, and calls no taker.
  void Stop();
  // Turns the connections from `address` (IP:PORT) into members. Call this after a gRPC call from
  // that address has met the job's requirements.
  void Admit(const std::string& address);

  int port() const { return port_; }
  size_t strangers() const;
  size_t members() const;
  uint64_t refused_for_lack_of_descriptors() const;  // Since Start.

 private:
  using Clock = std::chrono::steady_clock;
  // A socket that is passed on to gRPC. `own` is a duplicate descriptor, which exists while the
  // connection is a stranger or is being passed on. It lets the acceptor end the connection
  // regardless of `given`. gRPC may close `given`; `device` and `inode` show whether `given` still
  // refers to this socket.
  struct Socket {
    int given = -1;
    int own = -1;
    uint64_t device = 0;
    uint64_t inode = 0;
  };
  struct Waiting {
    ConnectionTable::Id id = 0;
    int fd = -1;
  };
  // The connection that a taker is processing, and the time when the taker was called.
  struct Taker {
    std::optional<ConnectionTable::Id> id{};
    Clock::time_point since{};
  };
  struct Counts {
    uint64_t late = 0;
    uint64_t too_much = 0;
    uint64_t displaced = 0;
    uint64_t too_many_members = 0;
    uint64_t without_descriptor = 0;
  };

  void Run();
  void Give(size_t taker, const GiveAway& give_away);
  std::optional<Waiting> NextToGive(size_t taker);
  void Given(size_t taker);
  void Wait();
  void AcceptSome(int listener);
  void Admit(const net::Accepted& accepted);
  bool RefuseForLackOfDescriptors(int listener);
  void CloseLate();
  void EndOneThatBlocks(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndThoseThatSendMuch(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetGone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the connections that exceed a limit.
  std::vector<ConnectionTable::Id> TryToAdmit(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report();
  void End(ConnectionTable::Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(ConnectionTable::Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Logger logger_;
  const std::chrono::milliseconds unheard_;
  const int port_;
  std::vector<net::Listener> listeners_;
  int wake_ = -1;
  // A spare descriptor. It is closed briefly to accept and refuse a connection when no other
  // descriptor is free.
  int reserve_ = -1;
  std::thread thread_;
  std::vector<std::thread> givers_;

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ConnectionTable table_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<ConnectionTable::Id, Socket> sockets_ ABSL_GUARDED_BY(mutex_);
  CondVar waits_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // Each one is in `sockets_` or has ended.
  std::vector<Taker> takers_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point look_at_ ABSL_GUARDED_BY(mutex_){};
  Counts counts_ ABSL_GUARDED_BY(mutex_);    // Since Start.
  Counts reported_ ABSL_GUARDED_BY(mutex_);  // Counts that have been logged.

  // Only thread_ uses these.
  Clock::time_point weigh_at_{};
  Clock::time_point accept_from_{};
  Clock::time_point report_at_{};
};

}  // namespace sluice::server
