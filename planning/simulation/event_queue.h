// SPDX-License-Identifier: Apache-2.0
// EventQueue: the events of a simulated job, in order of time. Events of the same time come out in
// the order in which they were added, so equal inputs give equal runs. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sluice::planning {

// Nanoseconds since the start of the simulated job.
using Nanos = int64_t;

// A century: longer than any simulated job. The sum of two of them does not overflow.
constexpr double kLongestSeconds = 3.2e9;

// Longer times than kLongestSeconds count as kLongestSeconds.
constexpr Nanos FromSeconds(double seconds) {
  return static_cast<Nanos>(std::min(seconds, kLongestSeconds) * 1e9 + 0.5);
}
constexpr double ToSeconds(Nanos nanos) { return static_cast<double>(nanos) * 1e-9; }

enum class EventKind : uint8_t {
  kSegmentAtLink,  // `what` is a segment whose first byte reaches its next link.
  kLinkFree,       // Link `who` has sent a segment.
  kFlowReady,      // Flow `what` may pass its next segment to its first link.
  kDelivered,      // The last byte of message `what` has arrived.
  kShardFree,      // Shard `who` has finished its work.
  kShardSends,     // The next answer of shard `who` leaves.
  kShardTick,      // Work of shard `who` may be due without a contribution.
  kBundleReady,    // Worker `who` has the gradients of the bundles up to place `what`.
  kComputed,       // Worker `who` has finished computing.
  kEncoded,        // Worker `who` has encoded a bundle.
  kApplied,        // Worker `who` has applied the results of its step.
  kRetry,          // Worker `who` may send to shard `what` again.
  kWorkerDown,     // Worker `who` fails.
  kWorkerUp,       // Worker `who` is back.
  kLeaseEnds,      // The lease of worker `who` has ended.
};

struct Event {
  EventKind kind = EventKind::kDelivered;
  uint32_t who = 0;
  uint32_t what = 0;
  // For events of workers: the number of the worker's life in which the event was added. Events of
  // earlier lives have no effect.
  uint32_t life = 0;
};

class EventQueue {
 public:
  // Adds an event at `at`, or now if that is in the past.
  void Add(Nanos at, Event event) {
    const Entry entry = {std::max(at, now_), added_++, event};
    size_t place = heap_.size();
    heap_.push_back(entry);
    while (place > 0) {
      const size_t parent = (place - 1) / kChildren;
      if (!entry.IsBefore(heap_[parent])) break;
      heap_[place] = heap_[parent];
      place = parent;
    }
    heap_[place] = entry;
  }
  bool empty() const { return heap_.empty(); }
  // Removes the earliest event and makes its time the present. The queue must not be empty.
  Event Take() {
    const Entry first = heap_.front();
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) Sink(last);
    now_ = first.at;
    ++taken_;
    return first.event;
  }
  // The time of the last event that Take returned.
  Nanos now() const { return now_; }
  uint64_t taken() const { return taken_; }

 private:
  // A heap of few levels touches less memory than a binary one.
  static constexpr size_t kChildren = 4;
  struct Entry {
    Nanos at = 0;
    uint64_t order = 0;
    Event event;

    bool IsBefore(const Entry& other) const {
      return at != other.at ? at < other.at : order < other.order;
    }
  };

  // Puts an entry in the place of the first one.
  void Sink(const Entry& entry) {
    size_t place = 0;
    while (true) {
      const size_t begin = place * kChildren + 1;
      if (begin >= heap_.size()) break;
      const size_t end = std::min(begin + kChildren, heap_.size());
      size_t least = begin;
      for (size_t child = begin + 1; child < end; ++child) {
        if (heap_[child].IsBefore(heap_[least])) least = child;
      }
      if (!heap_[least].IsBefore(entry)) break;
      heap_[place] = heap_[least];
      place = least;
    }
    heap_[place] = entry;
  }

  std::vector<Entry> heap_;
  Nanos now_ = 0;
  uint64_t added_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace sluice::planning
