// How a shard takes part in compression plans. Shard 0 makes them, when it closes its first bundle
// of a step; the results of that bundle announce what holds two steps later. Workers tell the other
// shards with their first bundles of the step before, and a shard needs those of all ranks to close
// it: so all know a plan before it holds. Rules: docs/protocol.md, "Plans".
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/core/sync_shard.h"

namespace sluice {

absl::Status SyncShard::PrepareToPlan() {
  absl::StatusOr<std::unique_ptr<PlanMaker>> maker = PlanMaker::Create(
      options_.control, options_.compression, options_.table, static_cast<uint32_t>(ranks_.size()));
  if (!maker.ok()) return maker.status();
  if (*maker == nullptr) return absl::OkStatus();
  if (bundles_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are fewer chunks than shards: shard ", options_.shard,
                     " holds nothing and would never hear of a plan; lower `shards` or "
                     "compression.chunk_bytes"));
  }
  // What goes on takes the plans of its snapshot instead.
  const absl::Status known = plans_.Learn((*maker)->First());
  Check(known.ok(), "the first plan contradicts no other");
  if (options_.shard == 0) maker_ = *std::move(maker);
  return absl::OkStatus();
}

absl::Status SyncShard::RestorePlans(const ShardSnapshot& snapshot) {
  if (!options_.control.makes_plans()) {
    if (snapshot.plans.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "it is of a job whose control makes plans, and this job's does not; go on with the job "
        "file of the run that wrote it");
  }
  if (snapshot.plans.empty()) {
    return absl::InvalidArgumentError(
        "it has no compression plan, and this job's control makes some; go on with the job file of "
        "the run that wrote it");
  }
  absl::StatusOr<PlanBook> book =
      PlanBook::Of(snapshot.plans, options_.compression, options_.table);
  if (!book.ok()) return book.status();
  plans_ = *std::move(book);
  if (maker_ != nullptr) maker_->Resume(plans_.newest_id(), snapshot.step + 1);
  // Its chunks were saved as the plan of its step has them.
  TakeUpPlanOf(snapshot.step);
  return absl::OkStatus();
}

// Workers code as the plan says that holds in the step, and know every plan when it holds. So a
// request that says something else is of a worker that is not in step.
absl::Status SyncShard::CheckPlans(const Exchange& exchange) const {
  if (exchange.plan != nullptr) {
    if (!options_.control.makes_plans()) {
      return InvalidRequest(exchange, "brings a compression plan, and this job makes none");
    }
    absl::Status fits = CheckPlan(*exchange.plan, options_.compression, options_.table);
    if (fits.ok() && exchange.plan->effective_step != exchange.step + 1) {
      fits = absl::InvalidArgumentError(
          absl::StrCat("it begins with step ", exchange.plan->effective_step));
    }
    PlanBook known = plans_;
    if (fits.ok()) fits = known.Learn(exchange.plan);
    if (fits.ok() && options_.shard == 0 && !options_.replay &&
        known.newest_id() > plans_.newest_id()) {
      fits = absl::InvalidArgumentError("shard 0 has not made it");
    }
    if (!fits.ok()) {
      return InvalidRequest(exchange, absl::StrCat("brings compression plan ", exchange.plan->id,
                                                   ", which cannot be: ", fits.message()));
    }
  }
  if (exchange.keys_only || exchange.step < open_step_) return absl::OkStatus();
  PlanBook::Plan plan = plans_.At(exchange.step);
  const uint64_t wanted = plan == nullptr ? 0 : plan->id;
  if (exchange.plan_id == wanted) return absl::OkStatus();
  return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                               "; in this step plan ", wanted, " holds"));
}

// From a request that was checked.
void SyncShard::LearnPlan(const Exchange& exchange) {
  if (exchange.plan == nullptr) return;
  const absl::Status learned = plans_.Learn(exchange.plan);
  Check(learned.ok(), learned.message());
}

void SyncShard::MakePlan(Effects* out) {
  if (maker_ == nullptr || open_step_ == 0) return;
  PlanBook::Plan plan = maker_->Next(open_step_);
  if (plan == nullptr) return;
  const absl::Status known = plans_.Learn(plan);
  Check(known.ok(), known.message());
  out->emplace_back(PlanMade{std::move(plan)});
}

void SyncShard::TakeUpPlanOf(uint64_t step) {
  plans_.ForgetBefore(step);
  const PlanBook::Plan plan = plans_.At(step);
  if (plan == nullptr || plan->id == coded_by_) return;
  const absl::Status recoded = downlink_.Recode(
      SpecsUnder(plan.get(), Direction::kDownlink, Compressor::kShardSender, downlink_base_));
  Check(recoded.ok(), recoded.message());
  coded_by_ = plan->id;
}

}  // namespace sluice
