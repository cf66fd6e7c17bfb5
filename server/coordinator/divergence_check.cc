// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/divergence_check.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {

void DivergenceCheck::Compare(const protocol::WorkerHeartbeat& heartbeat, absl::Time now,
                              Effects* out) {
  const uint64_t step = heartbeat.parameters_hash_step;
  if (step == 0) return;
  const uint32_t term = run_.term().number;
  if (std::exchange(term_, term) != term) audit_.Clear();
  const Roster& roster = run_.roster();
  const protocol::Sender& sender = heartbeat.sender;
  // A replaying rank reports the later hashes again, so they are kept for comparison.
  const bool keep = run_.repairs_losses() && step > run_.book().newest();
  const std::optional<protocol::Sender> first =
      audit_.Report(step, sender, heartbeat.parameters_sha256,
                    keep ? std::nullopt : std::optional<uint32_t>(roster.Present()));
  if (!first.has_value()) return;
  const bool is_there = roster[first->rank].incarnation == first->incarnation;
  const std::string differ = absl::StrCat(
      "after step ", step, " the parameters of ", roster.Describe(sender.rank),
      " differ from those of ",
      is_there ? roster.Describe(first->rank)
               : absl::StrCat("an earlier process of rank ", first->rank),
      "; workers must compute the same from the same results (same build, same optimizer, no "
      "change to parameters outside it)");
  if (!ComesOfARepair(*first, sender, step)) return run_.Fail(differ, out);
  run_.RollBack(
      absl::StrCat(differ, ": training is not deterministic, so this cannot be repaired in place"),
      now, out);
}

// True if a replay may have caused the difference: a sender replayed the step, or the first sender
// is gone and others may have replayed. If no checkpoint includes the step, a rollback removes the
// difference. Any other difference would recur.
bool DivergenceCheck::ComesOfARepair(const protocol::Sender& first, const protocol::Sender& sender,
                                     uint64_t step) const {
  if (!run_.repairs_losses() || run_.is_elastic() || step <= run_.book().newest()) return false;
  return run_.roster()[first.rank].incarnation != first.incarnation || first.generation > 1 ||
         sender.generation > 1;
}

}  // namespace sluice::server
