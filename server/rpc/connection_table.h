// SPDX-License-Identifier: Apache-2.0
// ConnectionTable: tracks the connections to a gRPC port and decides which connections must end. A
// connection begins as a stranger. The first call with the credentials that the job requires
// (token, certificate) makes the connection a member; if the job requires none, any call does.
// Tight limits on the number of strangers and on their time always leave capacity for newcomers. At
// a limit, the oldest stranger of the peer with the most strangers must end. Pure: the caller has
// the sockets and the clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/shard/descriptor_need.h"

namespace sluice::server {

// Limits of one port. A stranger uses two file descriptors; a member uses one.
struct ConnectionLimits {
  size_t strangers = 256;
  size_t strangers_per_peer = 64;  // At least. Larger in a job with more connections.
  size_t members = 0;
  size_t members_per_peer = 0;                 // High enough for a whole job on one machine.
  std::chrono::milliseconds patience{10'000};  // Timeout for a stranger's first allowed call.
};

// Returns the limits for this need. `descriptors` is the process's limit, which must not be less
// than the need.
ConnectionLimits LimitsOf(const DescriptorNeed& need, uint64_t descriptors);

class ConnectionTable {
 public:
  using Id = uint64_t;  // Newer connections have larger ids.
  using Time = std::chrono::steady_clock::time_point;

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  struct Addition {
    Id id = 0;
    // Another connection that must end. It is already removed from the table.
    std::optional<Id> displaced{};
  };
  // Adds a stranger. Connections with the same `peer` share a limit. Admit uses `address` to find
  // the connection.
  Addition Add(const std::string& peer, const std::string& address, Time now);

  // Returns true if one more stranger of `peer` would displace another stranger.
  bool IsFullFor(const std::string& peer) const;

  struct Admission {
    std::vector<Id> members{};  // Connections that are members from now on.
    // Connections that exceed a limit and must end. They are already removed from the table.
    std::vector<Id> refused{};
  };
  // Records an allowed call from `address`. Two connections may have the same address if they lead
  // to two different addresses of this machine.
  Admission Admit(const std::string& address);

  // Removes and returns the strangers whose time has expired. They must end.
  std::vector<Id> RemoveLate(Time now);
  std::optional<Time> NextLate() const;

  void Remove(Id id);

  bool IsMember(Id id) const {
    const auto found = connections_.find(id);
    return found != connections_.end() && found->second.member;
  }
  const std::set<Id>& stranger_ids() const { return strangers_; }
  size_t strangers() const { return strangers_.size(); }
  size_t members() const { return connections_.size() - strangers_.size(); }

 private:
  struct Connection {
    std::string peer;
    std::string address;
    Time since{};
    bool member = false;
  };
  struct Peer {
    std::set<Id> strangers;
    size_t members = 0;
  };

  Id WhoMakesWay(const std::string& peer) const;

  const ConnectionLimits limits_;
  Id last_id_ = 0;
  std::map<Id, Connection> connections_;
  std::set<Id> strangers_;
  std::map<std::string, Peer> peers_;
  std::multimap<std::string, Id> ids_;  // By address.
};

}  // namespace sluice::server
