// The modes of a job: how its steps close.
#pragma once

#include <array>
#include <cstdint>

#include "base/enum_names.h"

namespace sluice::job {

enum class Mode : uint8_t { kSync, kAsync, kSsp, kLocalSgd };
constexpr auto NamesOf(Mode) {
  return std::to_array<EnumName<Mode>>({{Mode::kSync, "sync"},
                                        {Mode::kAsync, "async"},
                                        {Mode::kSsp, "ssp"},
                                        {Mode::kLocalSgd, "local_sgd"}});
}

}  // namespace sluice::job
