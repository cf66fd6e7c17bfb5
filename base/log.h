// Log: one line per event on stderr, `2026-11-21T04:08:11.123Z INFO shard-0: text`.
// For people: say what happened, to whom, with which value, and what to do. No logging in cores.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {

enum class LogLevel { kInfo, kWarning, kError };

// Names the process in each line it writes ("worker-3", "shard-0"), and leaves out what is below
// `lowest`. Copyable; thread-safe.
class Logger {
 public:
  explicit Logger(std::string component, LogLevel lowest = LogLevel::kInfo)
      : component_(std::move(component)), lowest_(lowest) {}

  template <typename... Parts>
  void Info(const Parts&... parts) const {
    Write(LogLevel::kInfo, absl::StrCat(parts...));
  }
  template <typename... Parts>
  void Warning(const Parts&... parts) const {
    Write(LogLevel::kWarning, absl::StrCat(parts...));
  }
  template <typename... Parts>
  void Error(const Parts&... parts) const {
    Write(LogLevel::kError, absl::StrCat(parts...));
  }

  const std::string& component() const { return component_; }
  LogLevel lowest() const { return lowest_; }

 private:
  void Write(LogLevel level, absl::string_view text) const;

  std::string component_;
  LogLevel lowest_;
};

}  // namespace sluice
