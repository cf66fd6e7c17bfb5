// StageTimes: the processor time that a process's threads spend in each stage of its exchanges.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace sluice::protocol {

enum class Stage : uint8_t {
  kReceive,  // From a message's bytes to what it says, checked; a worker: results taken in.
  kSum,      // A shard: contributions checked, decoded, added and divided.
  kEncode,   // A worker: gradients to frames; a shard: a mean to frames.
  kSend,     // From frames to a message that gRPC has.
  kApply,    // A worker: results decoded into parameters.
};
inline constexpr size_t kStages = 5;
// What each side has, in the order of an exchange.
inline constexpr std::array<Stage, 4> kWorkerStages = {Stage::kEncode, Stage::kSend,
                                                       Stage::kReceive, Stage::kApply};
inline constexpr std::array<Stage, 4> kServerStages = {Stage::kReceive, Stage::kSum, Stage::kEncode,
                                                       Stage::kSend};

absl::string_view ToString(Stage stage);  // "receive", ...

using StageSeconds = std::array<double, kStages>;  // By stage.

// Thread-safe. All times only grow.
class StageTimes {
 public:
  // Nanoseconds of the calling thread, from any origin: of processor time where it matters.
  using ReadClock = int64_t (*)();
  explicit StageTimes(ReadClock read_clock) : read_clock_(read_clock) {}

  StageSeconds Seconds() const;

 private:
  friend class StageSpan;
  void Add(Stage stage, int64_t ns);

  const ReadClock read_clock_;
  std::array<std::atomic<int64_t>, kStages> ns_{};
};

// What the thread that made it does, until it goes or Next is called, belongs to `stage`; but for
// what a span made meanwhile takes, which belongs to that one alone. A reading of the clock at each
// end.
class StageSpan {
 public:
  // `times`, if it is not null, must outlive this; null: nothing is measured.
  StageSpan(StageTimes* times, Stage stage);
  ~StageSpan();
  StageSpan(const StageSpan&) = delete;
  StageSpan& operator=(const StageSpan&) = delete;

  // From here on it belongs to `stage`. Not while a span that was made meanwhile is there.
  void Next(Stage stage);

 private:
  void Close(int64_t now);

  StageTimes* const times_;
  StageSpan* const outer_;  // Of this thread, when this was made; null: none.
  Stage stage_;
  int64_t begin_ = 0;
  int64_t inside_ = 0;  // Taken by spans within this one, since `begin_`.
};

}  // namespace sluice::protocol
