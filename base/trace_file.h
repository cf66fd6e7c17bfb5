// TraceFile: what the threads of a process did when, in the JSON that Perfetto (ui.perfetto.dev)
// and chrome://tracing load. Thread-safe. Each event is written by itself, so that a process that
// is killed leaves all that it did; such a file lacks the closing bracket, which the format allows.
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

// What a span of a trace is of.
struct TraceTags {
  std::optional<uint64_t> step{};
  std::optional<uint32_t> bundle{};
};

class TraceFile {
 public:
  // Then it is full: the log says so, and what comes later is left out.
  static constexpr uint64_t kBytesMax = uint64_t{256} << 20;

  struct Options {
    std::string path{};
    std::string process{};         // As viewers call it: "worker 3 of demo".
    uint32_t number = 0;           // Of the process; another one for each of a job's.
    const Clock* clock = nullptr;  // Of all times that are given here.
    uint64_t bytes_max = kBytesMax;
    Logger logger{"trace"};
  };

  // Begins the file anew. UNAVAILABLE: it cannot be written.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(Options options);
  // Ends the file.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  absl::Time Now() const { return options_.clock->Now(); }
  // The calling thread did this. Spans of a thread nest or follow each other.
  void Span(absl::string_view name, absl::Time begin, absl::Time end, const TraceTags& tags = {});
  // Something took that long which is no thread's; such spans may overlap. `id`: of those of a name
  // that overlap, each has another.
  void Overlapping(absl::string_view name, uint64_t id, absl::Time begin, absl::Time end,
                   const TraceTags& tags = {});
  // The calling thread's name in viewers.
  void NameThread(absl::string_view name);

 private:
  TraceFile(Options options, int file);
  std::string WallMicroseconds(absl::Time time) const;
  std::string Head(absl::string_view kind, absl::string_view name) const;
  void Write(absl::string_view event);

  const Options options_;
  const int file_;
  const absl::Duration to_wall_;  // So that traces of several machines lie side by side.
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<bool> full_ = false;
};

}  // namespace sluice
