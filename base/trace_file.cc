// SPDX-License-Identifier: Apache-2.0
#include "base/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace sluice {
namespace {

// Bytes reserved for the last event and the closing bracket.
constexpr uint64_t kSpare = 256;

// Quotes a string for JSON. Sluice's own names need no escapes, but a job's name can contain
// characters that do.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

std::string Arguments(const TraceTags& tags) {
  if (!tags.step.has_value()) return "{}";
  std::string arguments = absl::StrCat("{\"step\":", *tags.step);
  if (tags.bundle.has_value()) absl::StrAppend(&arguments, ",\"bundle\":", *tags.bundle);
  return arguments + "}";
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(Options options) {
  const int file =
      ::open(options.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
  if (file < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write the trace ", options.path, ": ",
                                               std::strerror(errno), "; does its folder exist?"));
  }
  std::unique_ptr<TraceFile> trace(new TraceFile(std::move(options), file));
  trace->Write("[");
  trace->Write(absl::StrCat(trace->Head("M", "process_name"),
                            ",\"args\":{\"name\":", Quoted(trace->options_.process), "}},\n"));
  return trace;
}

TraceFile::TraceFile(Options options, int file)
    : options_(std::move(options)), file_(file), to_wall_(absl::Now() - options_.clock->Now()) {}

TraceFile::~TraceFile() {
  // The end of the file contains an empty event, because a comma follows every other event.
  constexpr absl::string_view kEnd = "{}]\n";
  [[maybe_unused]] const ssize_t written = ::write(file_, kEnd.data(), kEnd.size());
  ::close(file_);
}

// Formats the time exactly. A double has a resolution of only a quarter of a microsecond for times
// of this size.
std::string TraceFile::WallMicroseconds(absl::Time time) const {
  const int64_t ns = absl::ToUnixNanos(time + to_wall_);
  return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000);
}

std::string TraceFile::Head(absl::string_view kind, absl::string_view name) const {
  return absl::StrCat("{\"ph\":\"", kind, "\",\"name\":", Quoted(name),
                      ",\"pid\":", options_.number, ",\"tid\":", ::gettid());
}

void TraceFile::Span(absl::string_view name, absl::Time begin, absl::Time end,
                     const TraceTags& tags) {
  if (full_) return;
  Write(absl::StrCat(Head("X", name),
                     absl::StrFormat(",\"ts\":%s,\"dur\":%.3f,\"args\":", WallMicroseconds(begin),
                                     absl::ToDoubleMicroseconds(end - begin)),
                     Arguments(tags), "},\n"));
}

void TraceFile::Overlapping(absl::string_view name, uint64_t id, absl::Time begin, absl::Time end,
                            const TraceTags& tags) {
  if (full_) return;
  const auto event = [&](const char* kind, absl::Time time) {
    return absl::StrCat(Head(kind, name), ",\"cat\":", Quoted(name), ",\"id\":", id,
                        ",\"ts\":", WallMicroseconds(time), ",\"args\":", Arguments(tags), "},\n");
  };
  Write(event("b", begin) + event("e", end));
}

void TraceFile::NameThread(absl::string_view name) {
  Write(absl::StrCat(Head("M", "thread_name"), ",\"args\":{\"name\":", Quoted(name), "}},\n"));
}

// Writes each event with one call, so that events of different threads do not interleave.
void TraceFile::Write(absl::string_view event) {
  if (bytes_.fetch_add(event.size()) + event.size() + kSpare > options_.bytes_max) {
    if (full_.exchange(true)) return;
    options_.logger.Warning("the trace ", options_.path, " is full at ", options_.bytes_max,
                            " bytes; later events are left out");
    return;
  }
  if (full_ || ::write(file_, event.data(), event.size()) == static_cast<ssize_t>(event.size())) {
    return;
  }
  if (full_.exchange(true)) return;
  options_.logger.Warning("the trace ", options_.path, " ends here: ", std::strerror(errno));
}

}  // namespace sluice
