// Log: one line per event on stderr, as text for people,
//   2026-11-21T04:08:11.123Z INFO shard-0: rank 3 is here
// or as JSON for programs (docs/operations.md, "Logs"):
//   {"time":"2026-11-21T04:08:11.123Z","level":"INFO","component":"shard-0","training_job":"mnist",
//    "event":"member_joined","rank":3,"message":"rank 3 is here"}
// Say what happened, to whom, with which value, and what to do. No logging in cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice {

enum class LogLevel { kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

struct LogOptions {
  LogLevel lowest = LogLevel::kInfo;  // What is below it is left out.
  LogFormat format = LogFormat::kText;
  std::string training_job{};  // Of JSON lines; empty: not known yet.
};

// What a line is about, for programs that read logs; names as those of metrics' labels. Text lines
// say it in words.
struct LogFields {
  std::string event{};  // A name that stays when the words change; empty: none.
  std::optional<uint32_t> rank{};
  std::optional<uint32_t> shard{};
  std::optional<uint64_t> step{};
  std::string reason{};
};

// One line, without its end. Line breaks and other control characters of `text` are escaped.
std::string FormatLogLine(absl::Time now, LogLevel level, absl::string_view component,
                          const LogOptions& options, const LogFields& fields,
                          absl::string_view text);

// Names the process in each line it writes ("worker-3", "shard-0"). Copyable; thread-safe.
class Logger {
 public:
  explicit Logger(std::string component, LogOptions options = {})
      : component_(std::move(component)), options_(std::move(options)) {}

  template <typename... Parts>
  void Info(const Parts&... parts) const {
    Write(LogLevel::kInfo, {}, absl::StrCat(parts...));
  }
  template <typename... Parts>
  void Warning(const Parts&... parts) const {
    Write(LogLevel::kWarning, {}, absl::StrCat(parts...));
  }
  template <typename... Parts>
  void Error(const Parts&... parts) const {
    Write(LogLevel::kError, {}, absl::StrCat(parts...));
  }
  void Write(LogLevel level, const LogFields& fields, absl::string_view text) const;

  const std::string& component() const { return component_; }

 private:
  std::string component_;
  LogOptions options_;
};

}  // namespace sluice
