// SPDX-License-Identifier: Apache-2.0
// The table of modes: the facts in which the modes of a job differ. Code asks for a fact and does
// not compare modes, so that a new mode needs a row here, its keys in the schema, and code only for
// behavior that no other mode has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/enum_names.h"
#include "base/required.h"

namespace sluice::job {

enum class Mode : uint8_t { kSync, kAsync, kSsp, kLocalSgd };

// A key of the job file that only some modes take.
struct ModeKey {
  Required<absl::string_view> name;
  Required<bool> needed;  // True if a job in the mode must have the key.
};

// Whether this version runs a combination of settings.
enum class Support : uint8_t { kBuilt, kImpossible };

// The answer for the jobs of a mode with an update rule (RuleOf). An empty rule matches any. The
// first row of a mode that matches decides.
struct ModeCombination {
  absl::string_view rule;
  Required<Support> support;
  absl::string_view key{};     // The key to change in the job file.
  absl::string_view reason{};  // Empty if the combination is built.
};

struct ModeTraits {
  Required<Mode> mode;
  Required<absl::string_view> name;
  // True if all workers take each step together. In the other modes, which are asynchronous, each
  // worker proceeds at its own pace, and every contribution closes alone.
  Required<bool> lockstep;
  // True if a worker waits when it is `staleness` steps ahead of the slowest worker.
  Required<bool> staleness_bounded;
  // True if workers take several steps of their own between exchanges. The shards then apply
  // `outer_optimizer` to the mean weight change.
  Required<bool> local_steps;
  // True if the workers' optimizers can apply the published means. Otherwise the shards always
  // update the parameters.
  Required<bool> workers_update;
  Required<absl::Span<const ModeKey>> keys;
  Required<absl::Span<const ModeCombination>> combinations;
};

namespace mode_rows {

inline constexpr ModeKey kSyncKeys[] = {
    {.name = "quorum", .needed = false},     {.name = "straggler_timeout", .needed = false},
    {.name = "late_decay", .needed = false}, {.name = "merge_weights", .needed = false},
    {.name = "merge_over", .needed = false}, {.name = "merge_method", .needed = false}};
inline constexpr ModeCombination kSync[] = {{"", Support::kBuilt}};

inline constexpr ModeKey kAsyncKeys[] = {{.name = "staleness_aware_lr", .needed = false}};
inline constexpr ModeKey kSspKeys[] = {{.name = "staleness", .needed = true},
                                       {.name = "staleness_aware_lr", .needed = false}};
inline constexpr ModeCombination kAsync[] = {
    {"average", Support::kImpossible, "mode",
     "a step of an asynchronous mode closes at every contribution, so there is no mean for the "
     "workers' optimizers to apply; it needs a rule on the shards"},
    {"", Support::kBuilt},
};

inline constexpr ModeKey kLocalSgdKeys[] = {
    {.name = "local_steps", .needed = true},        {.name = "outer_optimizer", .needed = false},
    {.name = "outer_lr", .needed = false},          {.name = "outer_momentum", .needed = false},
    {.name = "fragments", .needed = false},         {.name = "fragment_delay", .needed = false},
    {.name = "merge_alpha", .needed = false},       {.name = "quorum", .needed = false},
    {.name = "straggler_timeout", .needed = false}, {.name = "late_decay", .needed = false},
    {.name = "merge_weights", .needed = false},     {.name = "merge_over", .needed = false},
    {.name = "merge_method", .needed = false}};
inline constexpr ModeCombination kLocalSgd[] = {
    {"outer", Support::kBuilt},
    {"", Support::kImpossible, "optimizer.location",
     "in local_sgd each worker takes its own steps with the optimizer; the shards use "
     "outer_optimizer"},
};

}  // namespace mode_rows

inline constexpr ModeTraits kModes[] = {
    {.mode = Mode::kSync,
     .name = "sync",
     .lockstep = true,
     .staleness_bounded = false,
     .local_steps = false,
     .workers_update = true,
     .keys = mode_rows::kSyncKeys,
     .combinations = mode_rows::kSync},
    {.mode = Mode::kAsync,
     .name = "async",
     .lockstep = false,
     .staleness_bounded = false,
     .local_steps = false,
     .workers_update = false,
     .keys = mode_rows::kAsyncKeys,
     .combinations = mode_rows::kAsync},
    {.mode = Mode::kSsp,
     .name = "ssp",
     .lockstep = false,
     .staleness_bounded = true,
     .local_steps = false,
     .workers_update = false,
     .keys = mode_rows::kSspKeys,
     .combinations = mode_rows::kAsync},
    {.mode = Mode::kLocalSgd,
     .name = "local_sgd",
     .lockstep = true,
     .staleness_bounded = false,
     .local_steps = true,
     .workers_update = false,
     .keys = mode_rows::kLocalSgdKeys,
     .combinations = mode_rows::kLocalSgd},
};

// The row of each mode has the mode's number as its index.
consteval bool ModesAreInOrder() {
  for (size_t i = 0; i < std::size(kModes); ++i) {
    if (static_cast<size_t>(kModes[i].mode.value()) != i) return false;
  }
  return true;
}
static_assert(ModesAreInOrder());

constexpr const ModeTraits& TraitsOf(Mode mode) { return kModes[static_cast<size_t>(mode)]; }

constexpr auto NamesOf(Mode) {
  std::array<EnumName<Mode>, std::size(kModes)> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = {kModes[i].mode, kModes[i].name};
  return names;
}

// Returns true if all workers of a job in this mode take each step together.
constexpr bool InLockstep(Mode mode) { return TraitsOf(mode).lockstep; }

}  // namespace sluice::job
