// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "base/text.h"

namespace sluice {
namespace {

std::string LevelName(LogLevel level) { return absl::AsciiStrToUpper(NameOf(level)); }

std::string JsonLine(absl::string_view time, LogLevel level, absl::string_view component,
                     const LogOptions& options, const LogFields& fields, absl::string_view text) {
  nlohmann::ordered_json line = {
      {"time", time}, {"level", LevelName(level)}, {"component", component}};
  if (!options.training_job.empty()) line["training_job"] = options.training_job;
  if (!fields.event.empty()) line["event"] = fields.event;
  if (fields.rank.has_value()) line["rank"] = *fields.rank;
  if (fields.shard.has_value()) line["shard"] = *fields.shard;
  if (fields.step.has_value()) line["step"] = *fields.step;
  if (!fields.reason.empty()) line["reason"] = fields.reason;
  line["message"] = text;
  // A message may quote bytes of a file or of the network: bytes that are not UTF-8 become U+FFFD.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string FormatLogLine(absl::Time now, LogLevel level, absl::string_view component,
                          const LogOptions& options, const LogFields& fields,
                          absl::string_view text) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone());
  if (options.format == LogFormat::kJson) {
    return JsonLine(time, level, component, options, fields, text);
  }
  return absl::StrCat(time, " ", LevelName(level), " ", component, ": ", EscapeControls(text));
}

void Logger::Write(LogLevel level, const LogFields& fields, absl::string_view text) const {
  if (Writes(level)) WriteAlways(level, fields, text);
}

void Logger::WriteAlways(LogLevel level, const LogFields& fields, absl::string_view text) const {
  if (options_.sink) return options_.sink(level, component_, text);
  const std::string line =
      FormatLogLine(absl::Now(), level, component_, options_, fields, text) + "\n";
  // One write per line, so that lines of several threads and processes do not mix.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sluice
