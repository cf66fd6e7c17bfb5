// ConnectionTable: which connections to a gRPC port there are, and which have to go. A connection
// begins as a stranger. The first call that brings what the job asks for (token, certificate) makes
// it a member; with neither, any call does. Strangers have little place and little time, so that
// any number of them leaves place for newcomers: at a limit the oldest stranger of the peer with
// the most makes way. Pure: the caller has sockets and clock.
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

// A stranger takes two file descriptors, a member one.
struct ConnectionLimits {
  size_t strangers = 256;
  size_t strangers_per_peer = 64;
  size_t members = 0;
  size_t members_per_peer = 0;                 // A whole job may be on one machine.
  std::chrono::milliseconds patience{10'000};  // Until the first call of a member.
};

// `descriptors`: of the process, not less than the need.
ConnectionLimits LimitsOf(const DescriptorNeed& need, uint64_t descriptors);

class ConnectionTable {
 public:
  using Id = uint64_t;  // By age.
  using Time = std::chrono::steady_clock::time_point;

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  struct Addition {
    Id id = 0;
    std::optional<Id> displaced{};  // Another that has to go, and is not in the table any more.
  };
  // `peer`: the same for connections that count together. `address`: what Admit calls it.
  Addition Add(const std::string& peer, const std::string& address, Time now);

  // Whether one has to go before another stranger of `peer` has place.
  bool IsFullFor(const std::string& peer) const;

  struct Admission {
    std::vector<Id> members{};  // Are members from now on.
    std::vector<Id>
        refused{};  // There are too many: have to go, and are not in the table any more.
  };
  // A call with what the job asks for came from `address`. That may be two connections, to two
  // addresses of this machine.
  Admission Admit(const std::string& address);

  // Strangers whose time is over: they have to go, and are not in the table any more.
  std::vector<Id> TakeLate(Time now);
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
