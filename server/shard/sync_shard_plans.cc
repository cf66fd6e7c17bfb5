// Implements a shard's part in compression plans. Shard 0 makes a plan when it closes its first
// bundle of a step. The results of that bundle announce the plan, which takes effect two steps
// later. In the step before the plan takes effect, workers pass the plan to the other shards with
// their first bundles. A shard needs these bundles from all ranks to close the step, so every shard
// knows a plan before it takes effect. Rules: docs/protocol.md, "Plans".
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {
namespace {

bool SamePlan(const protocol::PlanHistory::Plan& a, const protocol::PlanHistory::Plan& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

// Workers encode with the plan in effect and know every plan in time. A request with another plan
// therefore comes from a worker that is out of step. With a policy that measures, there is another
// possible cause: the process of shard 0 that made this shard's plan is lost, and so are all
// workers that knew the plan. In that case the check fails with ABORTED, and the job rolls back.
absl::Status SyncShard::CheckPlans(const protocol::ExchangeRequest& exchange) const {
  if ((exchange.plan != nullptr || exchange.answered) && !options_.control.makes_plans()) {
    return InvalidRequest(exchange, "carries a compression plan, but this job makes none");
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
      absl::StrCat(fits.message(), "; all processes that knew this shard's plan are lost"));
}

absl::Status SyncShard::CheckBrought(const protocol::ExchangeRequest& exchange) const {
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
  return InvalidRequest(exchange, absl::StrCat("carries compression plan ", exchange.plan->id,
                                               ", which is invalid: ", fits.message()));
}

// Checks the plan that the previous process announced with its result for this step.
absl::Status SyncShard::CheckAnnounced(const protocol::ExchangeRequest& exchange) const {
  if (!exchange.answered && exchange.announced == nullptr) return absl::OkStatus();
  if (options_.shard != 0 || exchange.bundle != 0 || !options_.replay || !exchange.answered) {
    return InvalidRequest(
        exchange, "refers to an earlier result; only shard 0 accepts that, while it replays");
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
    fits = absl::InvalidArgumentError("another worker reported a different plan");
  }
  if (fits.ok()) return fits;
  return InvalidRequest(exchange, absl::StrCat("reports a compression plan for step ",
                                               exchange.step + job::kPlanDelay,
                                               ", which is invalid: ", fits.message()));
}

absl::Status SyncShard::CheckKnown(const protocol::ExchangeRequest& exchange) const {
  protocol::PlanHistory known = plans_.known;
  const absl::Status fits =
      exchange.plan == nullptr ? absl::OkStatus() : known.Learn(exchange.plan);
  if (!fits.ok()) {
    return InvalidRequest(exchange, absl::StrCat("carries compression plan ", exchange.plan->id,
                                                 ", which is invalid: ", fits.message()));
  }
  // If a step closes without some rank, a shard may miss the plan. Later results announce it again.
  if (options_.quorum > 0 || options_.elastic) return absl::OkStatus();
  // All ranks had reported their plans when the step began, and the newest plan applies.
  if (exchange.plan != nullptr && options_.shard != 0 && options_.control.measures() &&
      exchange.plan->id > plans_.known.newest_id() && exchange.plan->effective_step <= open_step_) {
    return InvalidRequest(
        exchange, absl::StrCat("carries compression plan ", exchange.plan->id, " for step ",
                               exchange.plan->effective_step, ", which has begun without it"));
  }
  if (exchange.keys_only || exchange.step < open_step_) return absl::OkStatus();
  const protocol::PlanHistory::Plan plan = plans_.known.At(exchange.step);
  const uint64_t wanted = plan == nullptr ? 0 : plan->id;
  if (exchange.plan_id == wanted) return absl::OkStatus();
  return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                               "; in this step plan ", wanted, " holds"));
}

// Expects a request that passed the checks.
void SyncShard::RecordPlan(const protocol::ExchangeRequest& exchange) {
  if (exchange.answered && !IsClosed(exchange.step, exchange.bundle)) {
    announced_[exchange.step] = exchange.announced;
  }
  if (exchange.plan == nullptr) return;
  const absl::Status learned = plans_.known.Learn(exchange.plan);
  Check(learned.ok(), learned.message());
}

// With a schedule, the step determines the plan. With a policy that measures, a plan that an
// earlier process announced stays in effect; if no worker knows it, the shard may replace it.
protocol::PlanHistory::Plan SyncShard::NextPlan() {
  const auto told = announced_.find(open_step_);
  if (options_.control.measures() && told != announced_.end()) {
    if (told->second != nullptr) plans_.maker->Took(told->second->id);
    return told->second;
  }
  return plans_.maker->Next(open_step_, plans_.measured.has_value() ? &*plans_.measured : nullptr);
}

void SyncShard::MakePlan(Effects* out) {
  if (plans_.maker == nullptr || open_step_ == 0) return;
  protocol::PlanHistory::Plan plan = NextPlan();
  announced_.erase(open_step_);
  plans_.measured.reset();
  AddMadePlan(std::move(plan), open_step_, &plans_, out);
}

void SyncShard::AdoptPlanOf(uint64_t step) {
  plans_.known.ForgetBefore(step);
  AdoptPlan(plans_.known.At(step), options_, downlink_base_, &downlink_, &replica_, &plans_);
}

}  // namespace sluice::server
