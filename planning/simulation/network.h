// SPDX-License-Identifier: Apache-2.0
// Network: the time that messages take through the links of a cluster.
//
// Messages from one process to another form a flow, as on a TCP connection, and arrive in order. A
// flow cuts its messages into segments. A link sends one segment at a time and takes the flows that
// wait in turns (self-clocked fair queueing: S. J. Golestani, INFOCOM 1994). Thus large messages
// share a link, as TCP connections do (Cluster::share_sigma), and messages up to one segment pass
// one after another, as bursts of a connection's window do. A segment's first byte reaches the next
// link as soon as this link has begun to send it, so the slowest link alone sets the time of a long
// message.
//
// Pure; not thread-safe. Equal calls give equal times.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planning/simulation/cluster.h"
#include "planning/simulation/event_queue.h"

namespace sluice::planning {

// The share of a link's rate that the payload of a TCP connection reaches: bare TCP over Ethernet
// with packets of 1500 bytes (docs/performance.md).
inline constexpr double kTcpShare = 0.955;
// TCP's congestion window and the kernel's queues hold about this much of a connection.
inline constexpr uint32_t kSegmentBytes = 64 << 10;

// Returns the highest rate, in bits per second, of a connection with this round trip and share of
// lost packets: MSS / RTT * sqrt(3/2) / sqrt(p) (Mathis, Semke, Mahdavi, Ott, CCR 27(3), 1997).
// Returns 0, which means no limit, if nothing is lost or the round trip takes no time.
double ConnectionLimit(double round_trip_s, double loss);

// The use of one direction of a link.
struct LinkUse {
  uint64_t bytes = 0;  // Payload.
  Nanos busy = 0;
};

class Network {
 public:
  // The queue must outlive the network.
  Network(const Cluster& cluster, uint32_t workers, uint32_t shards, EventQueue* queue);

  // Sends a message of `bytes` bytes from a worker to a shard or back. A kDelivered event with
  // `message` follows. Processes are numbered: first the workers, then the shards.
  void Send(uint32_t from, uint32_t to, uint64_t bytes, uint32_t message);
  // Returns the latency of the links from process to process, one way.
  Nanos Latency(uint32_t from, uint32_t to) const;
  // Handles an event of the kinds kSegmentAtLink, kLinkFree and kFlowReady.
  void Handle(const Event& event);

  uint32_t machines() const { return machines_; }
  uint32_t racks() const { return racks_; }
  uint32_t machine_of(uint32_t process) const { return machine_of_[process]; }
  LinkUse up(uint32_t machine) const { return links_[2 * machine].use; }
  LinkUse down(uint32_t machine) const { return links_[2 * machine + 1].use; }
  LinkUse rack_up(uint32_t rack) const { return links_[2 * (machines_ + rack)].use; }
  LinkUse rack_down(uint32_t rack) const { return links_[2 * (machines_ + rack) + 1].use; }
  // Payload bytes that were passed to Send, and of messages that have arrived.
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_delivered() const { return bytes_delivered_; }

 private:
  struct Waiting {
    double tag = 0;
    uint64_t order = 0;
    uint32_t segment = 0;
  };
  struct Link {
    double ns_per_byte = 0;  // Per byte of payload.
    Nanos latency = 0;
    double loss = 0;
    Nanos burst = 0;    // Time for a full bucket's bytes at the link's rate.
    Nanos paid_at = 0;  // When the link would be free without a bucket.
    Nanos free_at = 0;
    bool wakes = false;  // A kLinkFree event is on its way.
    double virtual_time = 0;
    std::vector<Waiting> waiting{};  // A heap.
    LinkUse use{};
  };
  struct Message {
    uint32_t id = 0;
    uint64_t left = 0;  // Bytes that have not been passed to the first link.
  };
  // Up from a machine and a rack, and down to a rack and a machine.
  static constexpr size_t kHopsMax = 4;
  struct Route {
    std::array<uint32_t, kHopsMax> links{};
    uint8_t hops = 0;  // 0 between processes of a machine.
  };
  struct Flow {
    Route route{};
    std::array<double, kHopsMax> last_tag{};  // By hop.
    std::vector<Message> messages{};          // From `first` on.
    size_t first = 0;
    double weight = 1;       // Its share of a link is proportional to this.
    uint64_t begins = 0;     // How often it has begun to send.
    bool sending = false;    // A segment is at the first link, or the flow waits.
    double ns_per_byte = 0;  // The connection's own limit; 0 means none.
    Nanos next = 0;          // The connection's limit permits no segment before this time.
  };
  struct Segment {
    uint32_t flow = 0;
    uint32_t bytes = 0;
    uint8_t hop = 0;
    bool ends_message = false;
    uint32_t message = 0;
    Nanos last = 0;  // The time when its last byte reaches the present link, at the earliest.
  };

  // Orders a heap whose top has the lowest tag.
  struct IsLaterTurn {
    bool operator()(const Waiting& a, const Waiting& b) const {
      return a.tag != b.tag ? a.tag > b.tag : a.order > b.order;
    }
  };
  void AddLinks(const LinkSpec& spec);
  uint32_t FlowOf(uint32_t from, uint32_t to);
  Route RouteOf(uint32_t from, uint32_t to) const;
  void Inject(uint32_t flow);
  void Arrive(uint32_t segment);
  void Serve(uint32_t link, uint32_t segment);
  void ServeNext(uint32_t link);

  static constexpr uint32_t kNoFlow = ~0u;

  EventQueue* const queue_;
  const uint32_t workers_;
  const uint32_t shards_;
  const double share_sigma_;
  const uint64_t seed_;
  uint32_t machines_ = 0;
  uint32_t racks_ = 0;
  std::vector<uint32_t> machine_of_;  // By process.
  std::vector<uint32_t> rack_of_;     // By machine.
  std::vector<Link> links_;           // Up and down of each machine, then of each rack.
  std::vector<Flow> flows_;
  std::vector<uint32_t> flow_of_;  // By sender and receiver; kNoFlow before the first message.
  std::vector<Segment> segments_;
  std::vector<uint32_t> free_segments_;
  uint64_t order_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t bytes_delivered_ = 0;
};

}  // namespace sluice::planning
