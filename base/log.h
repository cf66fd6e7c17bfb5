// SPDX-License-Identifier: Apache-2.0
// Log: one line per event on stderr, as text for people,
//   2026-11-21T04:08:11.123Z INFO shard-0: rank 3 is here
// or as JSON for programs (docs/operations.md, "Logs"):
//   {"time":"2026-11-21T04:08:11.123Z","level":"INFO","component":"shard-0","training_job":"mnist",
//    "event":"member_joined","rank":3,"message":"rank 3 is here"}
// A message states the event, the process, the value, and the remedy. Cores do not log.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log_level.h"

namespace sluice {

enum class LogFormat { kText, kJson };

struct LogOptions {
  // Events below this level are not written until Logger::SetLowest.
  LogLevel lowest = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  // The job's name, which JSON lines contain. Empty while the name is unknown.
  std::string training_job{};
  // Receives each event instead of stderr. Any thread may call the sink, even while it holds locks,
  // so the sink must not block and must not call back. The string arguments are valid only until
  // the sink returns.
  std::function<void(LogLevel level, absl::string_view component, absl::string_view text)> sink{};
};

// Machine-readable fields of a log line. They have the same names as the labels of metrics. Text
// lines state the same facts in words.
struct LogFields {
  // A stable name that does not change with the wording of the message. If it is empty, the line
  // has no event field.
  std::string event{};
  std::optional<uint32_t> rank{};
  std::optional<uint32_t> shard{};
  std::optional<uint64_t> step{};
  std::string reason{};
};

// Formats one line, without its line break. Escapes line breaks and other control characters of
// `text`.
std::string FormatLogLine(absl::Time now, LogLevel level, absl::string_view component,
                          const LogOptions& options, const LogFields& fields,
                          absl::string_view text);

// A handle for one process's log lines, which carry the name of the process ("worker-3",
// "shard-0"). A Logger is copyable and thread-safe. Copies share the lowest level.
class Logger {
 public:
  explicit Logger(std::string component, LogOptions options = {})
      : component_(std::move(component)),
        options_(std::move(options)),
        lowest_(std::make_shared<std::atomic<LogLevel>>(options_.lowest)) {}

  template <typename... Parts>
  void Debug(const Parts&... parts) const {
    if (Writes(LogLevel::kDebug)) Write(LogLevel::kDebug, {}, absl::StrCat(parts...));
  }
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
  // Writes "audit: " and the text at level INFO, even if that is below the lowest level. So a
  // higher level does not hide who gave which command.
  template <typename... Parts>
  void Audit(const Parts&... parts) const {
    WriteAlways(LogLevel::kInfo, {}, absl::StrCat("audit: ", parts...));
  }

  // Events below this level are not written by this logger and its copies from now on.
  void SetLowest(LogLevel lowest) const { lowest_->store(lowest, std::memory_order_relaxed); }
  bool Writes(LogLevel level) const { return level >= lowest_->load(std::memory_order_relaxed); }

  const std::string& component() const { return component_; }

 private:
  void WriteAlways(LogLevel level, const LogFields& fields, absl::string_view text) const;

  std::string component_;
  LogOptions options_;
  std::shared_ptr<std::atomic<LogLevel>> lowest_;
};

}  // namespace sluice
