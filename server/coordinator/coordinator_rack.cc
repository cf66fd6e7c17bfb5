// How a relay's coordinator lets the parent job decide two things: the step that the rack continues
// from in a term, and when the job is finished.

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {

// Called when all members are present. A rack asks the parent job once for each term.
bool Coordinator::MayBegin(Effects* out) {
  if (!options_.in_rack || parent_.is_open()) return true;
  if (parent_.Ask()) out->push_back(AskParent{term_.number, roster_.table()});
  return false;
}

void Coordinator::StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree,
                                absl::Time now, Effects* out) {
  if (term != term_.number || !gathering() || !parent_.asked()) return;
  checkpoints_.ContinueFrom(restore_step);
  term_.restore_step = restore_step;
  term_.parameters_agree = parameters_agree || restore_step > 0;
  parent_.Open();
  waiting_since_ = now;
  StartWhenComplete(now, out);
}

void Coordinator::ParentLost(uint32_t term, absl::string_view cause, absl::Time now, Effects* out) {
  if (term != term_.number || ended()) return;
  if (!has_checkpoints()) {
    Fail(cause, out);
    return;
  }
  RollBack(cause, now, out);
}

std::optional<absl::Status> Coordinator::CheckpointOutcome(uint64_t step) const {
  if (book().IsComplete(step)) return absl::OkStatus();
  if (!book().IsOver(step)) return std::nullopt;
  return absl::UnavailableError(absl::StrCat("the rack has no checkpoint after step ", step,
                                             checkpoints_.trouble().empty() ? "" : ": ",
                                             checkpoints_.trouble()));
}

void Coordinator::Finish(Effects* out) {
  if (!options_.in_rack) {
    End(protocol::JobPhase::kFinished, "", absl::StatusCode::kFailedPrecondition, out);
  } else if (parent_.Leave()) {
    out->push_back(LeaveParent{term_.number});
  }
}

void Coordinator::FinishParent(uint32_t term, Effects* out) {
  if (term != term_.number || !parent_.is_leaving()) return;
  End(protocol::JobPhase::kFinished, "", absl::StatusCode::kFailedPrecondition, out);
}

}  // namespace sluice::server
