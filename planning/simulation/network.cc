// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "planning/simulation/step_plan.h"

namespace sluice::planning {
namespace {

constexpr double kMaximumSegmentSize = 1448;  // Bytes of payload in a packet of 1500 bytes.

double NanosPerByte(double bits_per_second) {
  return bits_per_second > 0 ? 8e9 / (bits_per_second * kTcpShare) : 0;
}

}  // namespace

double ConnectionLimit(double round_trip_s, double loss) {
  if (loss <= 0 || round_trip_s <= 0) return 0;
  return 8 * kMaximumSegmentSize / round_trip_s * std::sqrt(1.5 / loss);
}

Network::Network(const Cluster& cluster, uint32_t workers, uint32_t shards, EventQueue* queue)
    : queue_(queue),
      workers_(workers),
      shards_(shards),
      share_sigma_(cluster.share_sigma),
      seed_(cluster.seed),
      machines_(workers + (cluster.colocated ? 0 : shards)),
      racks_(std::max(cluster.racks, 1u)) {
  for (uint32_t worker = 0; worker < workers; ++worker) {
    machine_of_.push_back(worker);
    rack_of_.push_back(worker % racks_);
    AddLinks(cluster.worker);
  }
  for (uint32_t shard = 0; shard < shards; ++shard) {
    machine_of_.push_back(cluster.colocated ? shard % workers : workers + shard);
    if (cluster.colocated) continue;
    rack_of_.push_back(shard % racks_);
    AddLinks(cluster.shard);
  }
  for (uint32_t rack = 0; rack < racks_; ++rack) AddLinks(cluster.rack);
  flow_of_.assign(size_t{2} * workers_ * shards_, kNoFlow);
}

void Network::AddLinks(const LinkSpec& spec) {
  for (const double rate : {spec.up_bps, spec.down_bps}) {
    Link link;
    link.ns_per_byte = NanosPerByte(rate);
    link.latency = FromSeconds(spec.latency_s);
    link.burst = static_cast<Nanos>(link.ns_per_byte * spec.burst_bytes);
    link.loss = spec.loss;
    links_.push_back(std::move(link));
  }
}

Network::Route Network::RouteOf(uint32_t from, uint32_t to) const {
  const uint32_t source = machine_of_[from];
  const uint32_t target = machine_of_[to];
  Route route;
  if (source == target) return route;
  route.links[route.hops++] = 2 * source;
  if (rack_of_[source] != rack_of_[target]) {
    route.links[route.hops++] = 2 * (machines_ + rack_of_[source]);
    route.links[route.hops++] = 2 * (machines_ + rack_of_[target]) + 1;
  }
  route.links[route.hops++] = 2 * target + 1;
  return route;
}

Nanos Network::Latency(uint32_t from, uint32_t to) const {
  const Route route = RouteOf(from, to);
  Nanos latency = 0;
  for (uint8_t hop = 0; hop < route.hops; ++hop) latency += links_[route.links[hop]].latency;
  return latency;
}

uint32_t Network::FlowOf(uint32_t from, uint32_t to) {
  const bool is_up = from < workers_;
  const uint32_t worker = is_up ? from : to;
  const uint32_t shard = (is_up ? to : from) - workers_;
  uint32_t& index = flow_of_[2 * (size_t{worker} * shards_ + shard) + (is_up ? 0 : 1)];
  if (index != kNoFlow) return index;
  index = static_cast<uint32_t>(flows_.size());
  Flow flow;
  flow.route = RouteOf(from, to);
  double arrives = 1;  // The share of the packets that is not lost.
  for (uint8_t hop = 0; hop < flow.route.hops; ++hop) {
    arrives *= 1 - links_[flow.route.links[hop]].loss;
  }
  flow.ns_per_byte = NanosPerByte(ConnectionLimit(2 * ToSeconds(Latency(from, to)), 1 - arrives));
  flows_.push_back(std::move(flow));
  return index;
}

void Network::Send(uint32_t from, uint32_t to, uint64_t bytes, uint32_t message) {
  Check(bytes > 0, "a message has bytes");
  const uint32_t index = FlowOf(from, to);
  Flow& flow = flows_[index];
  bytes_sent_ += bytes;
  if (flow.route.hops == 0) {
    bytes_delivered_ += bytes;
    queue_->Add(queue_->now(), {.kind = EventKind::kDelivered, .what = message});
    return;
  }
  flow.messages.push_back({.id = message, .left = bytes});
  if (flow.sending) return;
  // Bit 63 keeps the draws apart from those of stragglers.
  flow.weight = LognormalFactor(share_sigma_, seed_, uint64_t{1} << 63 | index, flow.begins++);
  Inject(index);
}

// Passes the flow's next segment to its first link as soon as the connection's limit permits it.
void Network::Inject(uint32_t index) {
  Flow& flow = flows_[index];
  flow.sending = true;
  if (queue_->now() < flow.next) {
    queue_->Add(flow.next, {.kind = EventKind::kFlowReady, .what = index});
    return;
  }
  Message& message = flow.messages[flow.first];
  if (free_segments_.empty()) {
    free_segments_.push_back(static_cast<uint32_t>(segments_.size()));
    segments_.emplace_back();
  }
  const uint32_t id = free_segments_.back();
  free_segments_.pop_back();
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(message.left, kSegmentBytes));
  message.left -= bytes;
  segments_[id] = {.flow = index,
                   .bytes = bytes,
                   .hop = 0,
                   .ends_message = message.left == 0,
                   .message = message.id,
                   .last = queue_->now()};
  if (message.left == 0 && ++flow.first == flow.messages.size()) {
    flow.messages.clear();
    flow.first = 0;
  }
  flow.next = queue_->now() + static_cast<Nanos>(flow.ns_per_byte * bytes);
  Arrive(id);
}

void Network::Arrive(uint32_t id) {
  const Segment& segment = segments_[id];
  Flow& flow = flows_[segment.flow];
  const uint32_t index = flow.route.links[segment.hop];
  Link& link = links_[index];
  if (queue_->now() >= link.free_at && link.waiting.empty()) return Serve(index, id);
  double& last_tag = flow.last_tag[segment.hop];
  last_tag = std::max(link.virtual_time, last_tag) + segment.bytes / flow.weight;
  link.waiting.push_back({.tag = last_tag, .order = order_++, .segment = id});
  std::push_heap(link.waiting.begin(), link.waiting.end(), IsLaterTurn());
  if (std::exchange(link.wakes, true)) return;
  queue_->Add(link.free_at, {.kind = EventKind::kLinkFree, .who = index});
}

void Network::Serve(uint32_t index, uint32_t id) {
  Link& link = links_[index];
  Segment& segment = segments_[id];
  const auto takes = static_cast<Nanos>(link.ns_per_byte * segment.bytes);
  const Nanos now = queue_->now();
  link.paid_at = std::max(link.paid_at, now) + takes;
  link.free_at = std::max(now, link.paid_at - link.burst);
  link.use.bytes += segment.bytes;
  link.use.busy += takes;
  segment.last = std::max(link.free_at, segment.last) + link.latency;
  const uint32_t flow = segment.flow;
  const bool is_first = segment.hop == 0;
  if (++segment.hop < flows_[flow].route.hops) {
    queue_->Add(now + link.latency, {.kind = EventKind::kSegmentAtLink, .what = id});
  } else {
    bytes_delivered_ += segment.bytes;
    if (segment.ends_message) {
      queue_->Add(segment.last, {.kind = EventKind::kDelivered, .what = segment.message});
    }
    free_segments_.push_back(id);
  }
  if (!is_first) return;
  // The flow's next segment waits for its turn again.
  flows_[flow].sending = flows_[flow].first < flows_[flow].messages.size();
  if (!flows_[flow].sending) return;
  queue_->Add(link.free_at, {.kind = EventKind::kFlowReady, .what = flow});
}

void Network::ServeNext(uint32_t index) {
  Link& link = links_[index];
  link.wakes = false;
  std::pop_heap(link.waiting.begin(), link.waiting.end(), IsLaterTurn());
  const Waiting next = link.waiting.back();
  link.waiting.pop_back();
  link.virtual_time = next.tag;
  Serve(index, next.segment);
  if (link.waiting.empty()) return;
  link.wakes = true;
  queue_->Add(link.free_at, {.kind = EventKind::kLinkFree, .who = index});
}

void Network::Handle(const Event& event) {
  switch (event.kind) {
    case EventKind::kSegmentAtLink:
      return Arrive(event.what);
    case EventKind::kLinkFree:
      return ServeNext(event.who);
    case EventKind::kFlowReady:
      return Inject(event.what);
    default:
      Check(false, "the event belongs to the network");
  }
}

}  // namespace sluice::planning
