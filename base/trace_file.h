// SPDX-License-Identifier: Apache-2.0
// TraceFile: a trace of the threads of a process, in the JSON that Perfetto (ui.perfetto.dev) and
// chrome://tracing load. Thread-safe. Each event is written immediately, so the file of a killed
// process contains all its events. That file lacks the closing bracket, but the format allows this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"

namespace sluice {

// The step and the bundle that a span of the trace belongs to.
struct TraceTags {
  std::optional<uint64_t> step{};
  std::optional<uint32_t> bundle{};
};

class TraceFile {
 public:
  // Default limit on the file's size. At the limit, the log reports that the file is full, and
  // later events are dropped.
  static constexpr uint64_t kBytesMax = uint64_t{256} << 20;

  struct Options {
    std::string path{};
    // Name of the process in viewers: "worker 3 of demo".
    std::string process{};
    // A number that is different for each process of a job.
    uint32_t number = 0;
    // The clock that measured all times passed to this class.
    const Clock* clock = nullptr;
    uint64_t bytes_max = kBytesMax;
    Logger logger{"trace"};
  };

  // Creates the file, or truncates an existing file. Fails with UNAVAILABLE if the file cannot be
  // written.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(Options options);
  // Writes the end of the file and closes it.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  absl::Time Now() const { return options_.clock->Now(); }
  // Records a span of the calling thread. Spans of one thread must either nest or not overlap.
  void Span(absl::string_view name, absl::Time begin, absl::Time end, const TraceTags& tags = {});
  // Records a span that belongs to no thread. Such spans may overlap. If spans of the same name
  // overlap, they need different values of `id`.
  void Overlapping(absl::string_view name, uint64_t id, absl::Time begin, absl::Time end,
                   const TraceTags& tags = {});
  // Sets the name that viewers show for the calling thread.
  void NameThread(absl::string_view name);

 private:
  TraceFile(Options options, int file);
  std::string WallMicroseconds(absl::Time time) const;
  std::string Head(absl::string_view kind, absl::string_view name) const;
  void Write(absl::string_view event);

  const Options options_;
  const int file_;
  // Offset from the clock to wall time. Viewers need it to align traces of several machines.
  const absl::Duration to_wall_;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<bool> full_ = false;
};

}  // namespace sluice
