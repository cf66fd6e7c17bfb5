// How a shard takes part in compression plans. Shard 0 makes them, when it closes its first bundle
// of a step; the results of that bundle announce what holds two steps later. Workers tell the other
// shards with their first bundles of the step before, and a shard needs those of all ranks to close
// it: so all know a plan before it holds. Rules: docs/protocol.md, "Plans".
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {
namespace {

bool SamePlan(const protocol::PlanBook::Plan& a, const protocol::PlanBook::Plan& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

// Workers code as the plan says that holds in the step, and know every plan when it holds. So a
// request that says something else is of a worker that is not in step; or, with a policy that
// measures, whoever knew the plan that this shard was told of is lost, and so is the shard 0 that
// had made it: ABORTED, and the job goes back.
absl::Status SyncShard::CheckPlans(const protocol::Exchange& exchange) const {
  if ((exchange.plan != nullptr || exchange.answered) && !options_.control.makes_plans()) {
    return InvalidRequest(exchange, "brings a compression plan, and this job makes none");
  }
  absl::Status fits = CheckBrought(exchange);
  if (fits.ok()) fits = CheckAnnounced(exchange);
  if (!fits.ok()) return fits;
  fits = CheckKnown(exchange);
  if (fits.ok() || !options_.control.measures() || options_.shard == 0 ||
      options_.replay_bytes == 0) {
    return fits;
  }
  return absl::AbortedError(
      absl::StrCat(fits.message(), "; who knew of the plan that this shard was told of is lost"));
}

absl::Status SyncShard::CheckBrought(const protocol::Exchange& exchange) const {
  if (exchange.plan == nullptr) return absl::OkStatus();
  absl::Status fits = protocol::CheckPlan(*exchange.plan, options_.compression, options_.table);
  if (fits.ok() && exchange.plan->effective_step != exchange.step + 1) {
    fits = absl::InvalidArgumentError(
        absl::StrCat("it begins with step ", exchange.plan->effective_step));
  }
  if (fits.ok() && options_.shard == 0 && !options_.replay &&
      exchange.plan->id > plans_.known.newest_id()) {
    fits = absl::InvalidArgumentError("shard 0 has not made it");
  }
  if (fits.ok()) return fits;
  return InvalidRequest(exchange, absl::StrCat("brings compression plan ", exchange.plan->id,
                                               ", which cannot be: ", fits.message()));
}

// What the process before this one told with its result of the step.
absl::Status SyncShard::CheckAnnounced(const protocol::Exchange& exchange) const {
  if (!exchange.answered && exchange.announced == nullptr) return absl::OkStatus();
  if (options_.shard != 0 || exchange.bundle != 0 || !options_.replay || !exchange.answered) {
    return InvalidRequest(exchange,
                          "speaks of a result that was there before, to whom it does not concern");
  }
  if (IsClosed(exchange.step, exchange.bundle)) return absl::OkStatus();
  absl::Status fits;
  const auto told = announced_.find(exchange.step);
  if (exchange.announced != nullptr) {
    fits = protocol::CheckPlan(*exchange.announced, options_.compression, options_.table);
    if (fits.ok() && exchange.announced->effective_step != exchange.step + job::kPlanDelay) {
      fits = absl::InvalidArgumentError(
          absl::StrCat("it begins with step ", exchange.announced->effective_step));
    }
  }
  if (fits.ok() && told != announced_.end() && !SamePlan(told->second, exchange.announced)) {
    fits = absl::InvalidArgumentError("another worker was told something else");
  }
  if (fits.ok()) return fits;
  return InvalidRequest(exchange, absl::StrCat("was told of a compression plan for step ",
                                               exchange.step + job::kPlanDelay,
                                               ", which cannot be: ", fits.message()));
}

absl::Status SyncShard::CheckKnown(const protocol::Exchange& exchange) const {
  protocol::PlanBook known = plans_.known;
  const absl::Status fits =
      exchange.plan == nullptr ? absl::OkStatus() : known.Learn(exchange.plan);
  if (!fits.ok()) {
    return InvalidRequest(exchange, absl::StrCat("brings compression plan ", exchange.plan->id,
                                                 ", which cannot be: ", fits.message()));
  }
  // Where steps close without some, who would have brought a plan may be among them. Then this
  // shard's results have it later.
  if (options_.quorum > 0 || options_.elastic) return absl::OkStatus();
  // All ranks had brought what they knew when the step began, and codecs have that plan now.
  if (exchange.plan != nullptr && options_.shard != 0 && options_.control.measures() &&
      exchange.plan->id > plans_.known.newest_id() && exchange.plan->effective_step <= open_step_) {
    return InvalidRequest(
        exchange, absl::StrCat("brings compression plan ", exchange.plan->id, " for step ",
                               exchange.plan->effective_step, ", which has begun without it"));
  }
  if (exchange.keys_only || exchange.step < open_step_) return absl::OkStatus();
  const protocol::PlanBook::Plan plan = plans_.known.At(exchange.step);
  const uint64_t wanted = plan == nullptr ? 0 : plan->id;
  if (exchange.plan_id == wanted) return absl::OkStatus();
  return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                               "; in this step plan ", wanted, " holds"));
}

// From a request that was checked.
void SyncShard::LearnPlan(const protocol::Exchange& exchange) {
  if (exchange.answered && !IsClosed(exchange.step, exchange.bundle)) {
    announced_[exchange.step] = exchange.announced;
  }
  if (exchange.plan == nullptr) return;
  const absl::Status learned = plans_.known.Learn(exchange.plan);
  Check(learned.ok(), learned.message());
}

// A schedule's follows from the step. Otherwise what somebody was told before this process began
// stays so; nobody else knows of a plan, and another may be made in its place.
protocol::PlanBook::Plan SyncShard::NextPlan() {
  const auto told = announced_.find(open_step_);
  if (options_.control.measures() && told != announced_.end()) {
    if (told->second != nullptr) plans_.maker->Took(told->second->id);
    return told->second;
  }
  return plans_.maker->Next(open_step_, plans_.measured.has_value() ? &*plans_.measured : nullptr);
}

void SyncShard::MakePlan(Effects* out) {
  if (plans_.maker == nullptr || open_step_ == 0) return;
  protocol::PlanBook::Plan plan = NextPlan();
  announced_.erase(open_step_);
  plans_.measured.reset();
  AddMadePlan(std::move(plan), open_step_, &plans_, out);
}

void SyncShard::TakeUpPlanOf(uint64_t step) {
  plans_.known.ForgetBefore(step);
  TakeUpPlan(plans_.known.At(step), options_, downlink_base_, &downlink_, &replica_, &plans_);
}

}  // namespace sluice::server
