// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_table.h"

#include <algorithm>

namespace sluice::server {
namespace {

// All workers of a job may connect at once, from one machine.
constexpr uint64_t kMostStrangersPerPeer = 256;

}  // namespace

ConnectionLimits LimitsOf(const DescriptorNeed& need, uint64_t descriptors) {
  ConnectionLimits limits;
  // `need` already includes descriptors for newcomers. They also get half of the remaining
  // descriptors, up to their limit.
  const uint64_t rest = descriptors - std::min(descriptors, need.total());
  const uint64_t for_strangers = kNewcomerDescriptors + rest / 2;
  const uint64_t per_peer =
      std::clamp<uint64_t>(need.connections(), limits.strangers_per_peer, kMostStrangersPerPeer);
  limits.strangers = std::min(4 * per_peer, for_strangers / 2);
  limits.strangers_per_peer = std::min(per_peer, std::max<uint64_t>(32, limits.strangers / 4));
  const uint64_t for_members =
      need.connections() + rest - (2 * limits.strangers - kNewcomerDescriptors);
  // All members may reconnect before the loss of their old connections is noticed.
  limits.members = std::min<uint64_t>(for_members, 2 * need.connections() + 64);
  limits.members_per_peer = std::min<uint64_t>(limits.members, need.connections() + 64);
  return limits;
}

ConnectionTable::Addition ConnectionTable::Add(const std::string& peer, const std::string& address,
                                               Time now) {
  Addition addition;
  if (IsFullFor(peer)) {
    addition.displaced = WhoMakesWay(peer);
    Remove(*addition.displaced);
  }
  addition.id = ++last_id_;
  connections_.emplace(addition.id, Connection{.peer = peer, .address = address, .since = now});
  strangers_.insert(addition.id);
  peers_[peer].strangers.insert(addition.id);
  ids_.emplace(address, addition.id);
  return addition;
}

bool ConnectionTable::IsFullFor(const std::string& peer) const {
  const auto known = peers_.find(peer);
  return strangers_.size() >= limits_.strangers ||
         (known != peers_.end() && known->second.strangers.size() >= limits_.strangers_per_peer);
}

ConnectionTable::Id ConnectionTable::WhoMakesWay(const std::string& peer) const {
  const auto known = peers_.find(peer);
  if (known != peers_.end() && known->second.strangers.size() >= limits_.strangers_per_peer) {
    return *known->second.strangers.begin();
  }
  const Peer* most = nullptr;
  for (const auto& [name, other] : peers_) {
    if (other.strangers.empty()) continue;
    const size_t least = most == nullptr ? 0 : most->strangers.size();
    if (other.strangers.size() > least ||
        (other.strangers.size() == least && *other.strangers.begin() < *most->strangers.begin())) {
      most = &other;
    }
  }
  return *most->strangers.begin();
}

ConnectionTable::Admission ConnectionTable::Admit(const std::string& address) {
  Admission admission;
  const auto [begin, end] = ids_.equal_range(address);
  for (auto it = begin; it != end; ++it) {
    const Id id = it->second;
    Connection& connection = connections_.at(id);
    if (connection.member) continue;
    Peer& peer = peers_.at(connection.peer);
    if (members() >= limits_.members || peer.members >= limits_.members_per_peer) {
      admission.refused.push_back(id);
      continue;
    }
    connection.member = true;
    ++peer.members;
    peer.strangers.erase(id);
    strangers_.erase(id);
    admission.members.push_back(id);
  }
  return admission;
}

std::vector<ConnectionTable::Id> ConnectionTable::RemoveLate(Time now) {
  std::vector<Id> late;
  for (const Id id : strangers_) {
    if (now - connections_.at(id).since < limits_.patience) break;
    late.push_back(id);
  }
  for (const Id id : late) Remove(id);
  return late;
}

std::optional<ConnectionTable::Time> ConnectionTable::NextLate() const {
  if (strangers_.empty()) return std::nullopt;
  return connections_.at(*strangers_.begin()).since + limits_.patience;
}

void ConnectionTable::Remove(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection& connection = found->second;
  const auto peer = peers_.find(connection.peer);
  if (connection.member) {
    --peer->second.members;
  } else {
    peer->second.strangers.erase(id);
    strangers_.erase(id);
  }
  if (peer->second.members == 0 && peer->second.strangers.empty()) peers_.erase(peer);
  const auto [begin, end] = ids_.equal_range(connection.address);
  ids_.erase(std::find_if(begin, end, [&](const auto& one) { return one.second == id; }));
  connections_.erase(found);
}

}  // namespace sluice::server
