// How a shard takes part in compression plans. Shard 0 makes them, when it closes its first bundle
// of a step; the results of that bundle announce what holds two steps later. Workers tell the other
// shards with their first bundles of the step before, and a shard needs those of all ranks to close
// it: so all know a plan before it holds. Rules: docs/protocol.md, "Plans".
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/core/sync_shard.h"

namespace sluice {
namespace {

bool SamePlan(const PlanBook::Plan& a, const PlanBook::Plan& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

absl::Status SyncShard::PrepareToPlan() {
  absl::StatusOr<std::unique_ptr<PlanMaker>> maker = PlanMaker::Create(
      options_.control, options_.compression, options_.table, static_cast<uint32_t>(ranks_.size()),
      options_.momentum, ShareOfElements(options_));
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
// request that says something else is of a worker that is not in step; or, with a policy that
// measures, whoever knew the plan that this shard was told of is lost, and so is the shard 0 that
// had made it: ABORTED, and the job goes back.
absl::Status SyncShard::CheckPlans(const Exchange& exchange) const {
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

absl::Status SyncShard::CheckBrought(const Exchange& exchange) const {
  if (exchange.plan == nullptr) return absl::OkStatus();
  absl::Status fits = CheckPlan(*exchange.plan, options_.compression, options_.table);
  if (fits.ok() && exchange.plan->effective_step != exchange.step + 1) {
    fits = absl::InvalidArgumentError(
        absl::StrCat("it begins with step ", exchange.plan->effective_step));
  }
  if (fits.ok() && options_.shard == 0 && !options_.replay &&
      exchange.plan->id > plans_.newest_id()) {
    fits = absl::InvalidArgumentError("shard 0 has not made it");
  }
  if (fits.ok()) return fits;
  return InvalidRequest(exchange, absl::StrCat("brings compression plan ", exchange.plan->id,
                                               ", which cannot be: ", fits.message()));
}

// What the process before this one told with its result of the step.
absl::Status SyncShard::CheckAnnounced(const Exchange& exchange) const {
  if (!exchange.answered && exchange.announced == nullptr) return absl::OkStatus();
  if (options_.shard != 0 || exchange.bundle != 0 || !options_.replay || !exchange.answered) {
    return InvalidRequest(exchange,
                          "speaks of a result that was there before, to whom it does not concern");
  }
  if (IsClosed(exchange.step, exchange.bundle)) return absl::OkStatus();
  absl::Status fits;
  const auto told = announced_.find(exchange.step);
  if (exchange.announced != nullptr) {
    fits = CheckPlan(*exchange.announced, options_.compression, options_.table);
    if (fits.ok() && exchange.announced->effective_step != exchange.step + kPlanDelay) {
      fits = absl::InvalidArgumentError(
          absl::StrCat("it begins with step ", exchange.announced->effective_step));
    }
  }
  if (fits.ok() && told != announced_.end() && !SamePlan(told->second, exchange.announced)) {
    fits = absl::InvalidArgumentError("another worker was told something else");
  }
  if (fits.ok()) return fits;
  return InvalidRequest(
      exchange, absl::StrCat("was told of a compression plan for step ", exchange.step + kPlanDelay,
                             ", which cannot be: ", fits.message()));
}

absl::Status SyncShard::CheckKnown(const Exchange& exchange) const {
  PlanBook known = plans_;
  const absl::Status fits =
      exchange.plan == nullptr ? absl::OkStatus() : known.Learn(exchange.plan);
  if (!fits.ok()) {
    return InvalidRequest(exchange, absl::StrCat("brings compression plan ", exchange.plan->id,
                                                 ", which cannot be: ", fits.message()));
  }
  if (exchange.keys_only || exchange.step < open_step_) return absl::OkStatus();
  const PlanBook::Plan plan = plans_.At(exchange.step);
  const uint64_t wanted = plan == nullptr ? 0 : plan->id;
  if (exchange.plan_id == wanted) return absl::OkStatus();
  return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                               "; in this step plan ", wanted, " holds"));
}

// From a request that was checked.
void SyncShard::LearnPlan(const Exchange& exchange) {
  if (exchange.answered && !IsClosed(exchange.step, exchange.bundle)) {
    announced_[exchange.step] = exchange.announced;
  }
  if (exchange.plan == nullptr) return;
  const absl::Status learned = plans_.Learn(exchange.plan);
  Check(learned.ok(), learned.message());
}

// A schedule's follows from the step. Otherwise what somebody was told before this process began
// stays so; nobody else knows of a plan, and another may be made in its place.
PlanBook::Plan SyncShard::NextPlan() {
  const auto told = announced_.find(open_step_);
  if (options_.control.measures() && told != announced_.end()) {
    if (told->second != nullptr) maker_->Took(*told->second);
    return told->second;
  }
  return maker_->Next(open_step_, measured_.has_value() ? &*measured_ : nullptr);
}

void SyncShard::MakePlan(Effects* out) {
  if (maker_ == nullptr || open_step_ == 0) return;
  PlanBook::Plan plan = NextPlan();
  announced_.erase(open_step_);
  measured_.reset();
  if (plan == nullptr) return;
  // With what workers have said of plans, which need not be true.
  const absl::Status known = plans_.Learn(plan);
  if (!known.ok()) {
    out->emplace_back(Alarm{absl::StrCat("compression plan ", plan->id, " of step ", open_step_,
                                         " cannot be: ", known.message())});
    return;
  }
  out->emplace_back(PlanMade{std::move(plan)});
}

void SyncShard::TakeUpPlanOf(uint64_t step) {
  plans_.ForgetBefore(step);
  const PlanBook::Plan plan = plans_.At(step);
  if (plan == nullptr || plan->id == coded_by_) return;
  const absl::Status recoded = downlink_.Recode(
      SpecsUnder(plan.get(), Direction::kDownlink, Compressor::kShardSender, downlink_base_));
  Check(recoded.ok(), recoded.message());
  if (replica_.has_value()) replica_->SetMomentum(plan->momentum);
  coded_by_ = plan->id;
}

}  // namespace sluice
