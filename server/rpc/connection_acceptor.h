// ConnectionAcceptor: takes the connections to a gRPC port, within the limits of a ConnectionTable,
// and gives them to gRPC. gRPC's own listener knows no limits, and where the process has no file
// descriptor left it is deaf from then on (gRPC before 1.53.2). Without gRPC: functions take the
// sockets. Thread-safe. One thread accepts and ends connections, and never waits; one for each
// function calls it, which may take long: gRPC also reads what a connection brings there.
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
  using GiveAway = std::function<void(int fd)>;  // The socket is the callee's, to close too.

  // `listeners` are this object's from here on. `unheard`: a connection ends when what was sent is
  // not acknowledged for so long.
  ConnectionAcceptor(std::vector<net::Listener> listeners, const ConnectionLimits& limits,
                     std::chrono::milliseconds unheard, const Logger& logger);
  ~ConnectionAcceptor() { Stop(); }
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // `takers` are called on a thread each.
  void Start(std::vector<GiveAway> takers);
  // No socket is given away from here on, nothing listens, and no function is being called.
  void Stop();
  // From IP:PORT came a call that has what the job asks for.
  void Admit(const std::string& address);

  int port() const { return port_; }
  size_t strangers() const;
  size_t members() const;
  uint64_t refused_for_lack_of_descriptors() const;  // So far.

 private:
  using Clock = std::chrono::steady_clock;
  // A socket that is given away. `own` is a second descriptor of it, by which it can be ended
  // whatever happened to the first, as long as it is a stranger or is being given. `device` and
  // `inode` tell whether the first still is that socket, which others close.
  struct Socket {
    int given = -1;
    int own = -1;
    uint64_t device = 0;
    uint64_t inode = 0;
    // When a stranger was first over its limit of bytes.
    std::optional<Clock::time_point> much_since{};
  };
  struct Waiting {
    ConnectionTable::Id id = 0;
    int fd = -1;
  };
  // By which a connection is being given away, and since when.
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
  void Take(const net::Accepted& accepted);
  bool RefuseForLackOfDescriptors(int listener);
  void CloseLate();
  void EndOneThatBlocks(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndThoseThatSendMuch(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetGone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those for which there is no place.
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
  int reserve_ = -1;  // Given up for a moment to refuse a connection that needs a descriptor.
  std::thread thread_;
  std::vector<std::thread> givers_;

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ConnectionTable table_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<ConnectionTable::Id, Socket> sockets_ ABSL_GUARDED_BY(mutex_);
  CondVar waits_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // Of `sockets_`, or ended since.
  std::vector<Taker> takers_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point look_at_ ABSL_GUARDED_BY(mutex_){};
  Counts counts_ ABSL_GUARDED_BY(mutex_);    // So far.
  Counts reported_ ABSL_GUARDED_BY(mutex_);  // The counts that the log has.

  // The thread's alone.
  Clock::time_point weigh_at_{};
  Clock::time_point accept_from_{};
  Clock::time_point report_at_{};
};

}  // namespace sluice::server
