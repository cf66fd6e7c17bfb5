// SPDX-License-Identifier: Apache-2.0
// LogLevel: how important a log line is, from the least important on.
#pragma once

#include <array>
#include <cstdint>

#include "base/enum_names.h"

namespace sluice {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

constexpr auto NamesOf(LogLevel) {
  return std::to_array<EnumName<LogLevel>>({{LogLevel::kDebug, "debug"},
                                            {LogLevel::kInfo, "info"},
                                            {LogLevel::kWarning, "warning"},
                                            {LogLevel::kError, "error"}});
}

}  // namespace sluice
