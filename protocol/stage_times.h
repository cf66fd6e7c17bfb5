// SPDX-License-Identifier: Apache-2.0
// StageTimes: the processor time that the threads of a process spend in each stage of its
// exchanges.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace sluice::protocol {

enum class Stage : uint8_t {
  // Parsing and checking messages. On a worker, this includes accepting results.
  kReceive,
  kSum,     // On a shard: checking, decoding, adding and dividing contributions.
  kEncode,  // On a worker: gradients to frames. On a shard: the mean to frames.
  kSend,    // From frames to a message that is passed to gRPC.
  kApply,   // On a worker: applying decoded results to parameters.
};
inline constexpr size_t kStages = 5;
// The stages of each side, in the order of an exchange.
inline constexpr std::array<Stage, 4> kWorkerStages = {Stage::kEncode, Stage::kSend,
                                                       Stage::kReceive, Stage::kApply};
inline constexpr std::array<Stage, 4> kServerStages = {Stage::kReceive, Stage::kSum, Stage::kEncode,
                                                       Stage::kSend};

absl::string_view ToString(Stage stage);  // Returns "receive", "send" and so on.

using StageSeconds = std::array<double, kStages>;  // By stage.

// Thread-safe. The times never decrease.
class StageTimes {
 public:
  // Returns nanoseconds of the calling thread from an arbitrary origin. In production, this is
  // processor time.
  using ReadClock = int64_t (*)();
  explicit StageTimes(ReadClock read_clock) : read_clock_(read_clock) {}

  StageSeconds Seconds() const;

 private:
  friend class StageSpan;
  void Add(Stage stage, int64_t ns);

  const ReadClock read_clock_;
  std::array<std::atomic<int64_t>, kStages> ns_{};
};

// Attributes this thread's CPU time to `stage` until the span is destroyed or Next() is called.
// Time spent in a nested span counts only toward the nested span. A span reads the clock only at
// its start, in Next() and at its end.
class StageSpan {
 public:
  // `times` must outlive the span. If `times` is null, nothing is measured.
  StageSpan(StageTimes* times, Stage stage);
  ~StageSpan();
  StageSpan(const StageSpan&) = delete;
  StageSpan& operator=(const StageSpan&) = delete;

  // Attributes the time from now on to `stage`. Must not be called while an inner span exists.
  void Next(Stage stage);

 private:
  void Close(int64_t now);

  StageTimes* const times_;
  StageSpan* const outer_;  // Enclosing span of this thread, or null.
  Stage stage_;
  int64_t begin_ = 0;
  int64_t inside_ = 0;  // Time of inner spans since `begin_`.
};

}  // namespace sluice::protocol
