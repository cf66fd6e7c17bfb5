// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/recovery_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {

std::string PlaceOf(uint64_t step) { return step == 0 ? "its start" : absl::StrCat("step ", step); }

void RecoveryLog::Continue(std::string text, uint32_t term, uint64_t step, Effects* out) {
  last_rollback_ = std::move(text);
  out->push_back(Notice{.text = absl::StrCat(last_rollback_, " (term ", term, ")"),
                        .warning = true,
                        .fields = {.event = "rollback", .step = step}});
}

void RecoveryLog::RolledBack(std::string text, uint32_t term, uint64_t step, Effects* out) {
  rollbacks_ += 1;
  Continue(std::move(text), term, step, out);
}

void RecoveryLog::Repaired(absl::string_view text, Effects* out) {
  repairs_ += 1;
  last_repair_ = absl::StrCat(text, " (repair ", repairs_, "); nothing is lost");
  out->push_back(Notice{.text = last_repair_, .fields = {.event = "repair"}});
}

void RecoveryLog::Watch(RecoveryClass next, absl::string_view reason, uint64_t checkpoint_step,
                        Effects* out) {
  if (next == std::exchange(told_, next)) return;
  if (next == RecoveryClass::kReplay) {
    out->push_back(Notice{.text = "a loss would be repaired in place again (recovery class replay)",
                          .fields = {.event = "recovery_class", .reason = "replay"}});
    return;
  }
  out->push_back(
      Notice{.text = absl::StrCat("a loss would now roll the whole job back to ",
                                  PlaceOf(checkpoint_step), " (recovery class rollback): ", reason),
             .warning = true,
             .fields = {.event = "recovery_class", .reason = "rollback"}});
}

void RecoveryLog::AddTo(JobStatus* status) const {
  status->rollbacks = rollbacks_;
  status->last_rollback = last_rollback_;
  status->repairs = repairs_;
  status->last_repair = last_repair_;
}

}  // namespace sluice::server
