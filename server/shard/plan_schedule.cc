// SPDX-License-Identifier: Apache-2.0
#include "server/shard/plan_schedule.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "job/support.h"
#include "server/shard/request_fence.h"

namespace sluice::server {
namespace {

// A plan number is invalid if it is this far ahead of all known plans.
constexpr uint64_t kNumbersAhead = uint64_t{1} << 40;

bool SamePlan(const PlanSchedule::Plan& a, const PlanSchedule::Plan& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

absl::Status InvalidPlan(const protocol::ExchangeRequest& exchange, const absl::Status& why) {
  return InvalidRequest(exchange, absl::StrCat("carries compression plan ", exchange.plan->id,
                                               ", which is invalid: ", why.message()));
}

}  // namespace

PlanSchedule::PlanSchedule(const ShardOptions* options, std::vector<compress::ChunkConfig> base,
                           compress::Compressor* downlink, std::optional<ShardParameters>* replica)
    : options_(*options),
      lockstep_(options_.exchange.in_lockstep()),
      base_(std::move(base)),
      downlink_(downlink),
      replica_(replica) {}

absl::Status PlanSchedule::Prepare() {
  if (options_.forwards_sums) {
    if (!options_.exchange.control.makes_plans()) return absl::OkStatus();
    if (options_.parent_plan == nullptr) {
      return absl::InvalidArgumentError(
          "the parent job makes compression plans, but its first plan is unknown");
    }
    return known_.Learn(PlanInRack(*options_.parent_plan));
  }
  absl::StatusOr<std::unique_ptr<PlanMaker>> maker =
      PlanMaker::Create(options_.exchange.control, options_.exchange.compression, options_.table,
                        static_cast<uint32_t>(options_.incarnations.size()), options_.momentum,
                        ShareOfElements(options_), lockstep_ && options_.exchange.quorum == 0);
  if (!maker.ok()) return maker.status();
  if (*maker == nullptr) return absl::OkStatus();
  // A restored shard replaces this plan with the plans of its snapshot.
  const absl::Status known = known_.Learn((*maker)->First());
  sluice::Check(known.ok(), "the first plan contradicts no other");
  if (options_.shard == 0) maker_ = *std::move(maker);
  return absl::OkStatus();
}

absl::Status PlanSchedule::Restore(const protocol::ShardSnapshot& snapshot) {
  if (!options_.exchange.control.makes_plans()) {
    if (snapshot.plans.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "it belongs to a job whose control makes plans, but this job's does not; continue with the "
        "job file of the run that wrote it");
  }
  if (snapshot.plans.empty()) {
    return absl::InvalidArgumentError(
        "it has no compression plan, but this job's control makes plans; continue with the job "
        "file of the run that wrote it");
  }
  absl::StatusOr<protocol::PlanHistory> book =
      protocol::PlanHistory::Of(snapshot.plans, options_.exchange.compression, options_.table);
  if (!book.ok()) return book.status();
  known_ = *std::move(book);
  if (maker_ != nullptr) maker_->Resume(known_.newest_id(), snapshot.step + 1);
  Begin(snapshot.step);
  return absl::OkStatus();
}

absl::Status PlanSchedule::Check(const protocol::ExchangeRequest& exchange,
                                 const Position& at) const {
  return lockstep_ ? CheckLockstep(exchange, at) : CheckOwnPace(exchange);
}

// Workers encode with the plan in effect and know every plan in time. A request with another plan
// therefore comes from a worker that is out of step. With a policy that measures, there is another
// possible cause: all processes that knew this shard's plan are lost.
absl::Status PlanSchedule::CheckLockstep(const protocol::ExchangeRequest& exchange,
                                         const Position& at) const {
  if ((exchange.plan != nullptr || exchange.answered) && !options_.exchange.control.makes_plans()) {
    return InvalidRequest(exchange, "carries a compression plan, but this job makes none");
  }
  absl::Status fits = CheckBrought(exchange);
  if (fits.ok()) fits = CheckReported(exchange, at);
  if (!fits.ok()) return fits;
  fits = CheckKnown(exchange, at.open_step);
  if (fits.ok() || !options_.exchange.control.measures() || options_.shard == 0 ||
      options_.replay_bytes == 0) {
    return fits;
  }
  return absl::AbortedError(
      absl::StrCat(fits.message(), "; all processes that knew this shard's plan are lost"));
}

absl::Status PlanSchedule::CheckOwnPace(const protocol::ExchangeRequest& exchange) const {
  if (exchange.answered || exchange.announced != nullptr) {
    return InvalidRequest(exchange,
                          "refers to an earlier result; ranks of this mode do not replay steps");
  }
  const bool speaks = exchange.plan_id != 0 || exchange.plan != nullptr;
  if (!options_.exchange.control.makes_plans()) {
    if (!speaks) return absl::OkStatus();
    return InvalidRequest(exchange, "refers to a compression plan, but this job makes none");
  }
  // After a rollback, a rank may have a plan that shard 0 has not made again yet.
  if (exchange.plan_id > known_.newest_id() + kNumbersAhead) {
    return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                                 "; the newest is ", known_.newest_id()));
  }
  return CheckBrought(exchange);
}

// Checks the plan that the worker passes on from shard 0.
absl::Status PlanSchedule::CheckBrought(const protocol::ExchangeRequest& exchange) const {
  if (exchange.plan == nullptr) return absl::OkStatus();
  absl::Status fits =
      protocol::CheckPlan(*exchange.plan, options_.exchange.compression, options_.table);
  if (fits.ok() && !lockstep_ && exchange.plan->id != exchange.plan_id) {
    fits = absl::InvalidArgumentError(absl::StrCat("it is coded by plan ", exchange.plan_id));
  }
  if (fits.ok() && lockstep_ && exchange.plan->effective_step != exchange.step + 1) {
    fits = absl::InvalidArgumentError(
        absl::StrCat("it begins with step ", exchange.plan->effective_step));
  }
  if (fits.ok() && lockstep_ && options_.shard == 0 && !options_.replay &&
      exchange.plan->id > known_.newest_id()) {
    fits = absl::InvalidArgumentError("shard 0 has not made it");
  }
  return fits.ok() ? fits : InvalidPlan(exchange, fits);
}

// Checks the plan that the previous process announced with its result for this step.
absl::Status PlanSchedule::CheckReported(const protocol::ExchangeRequest& exchange,
                                         const Position& at) const {
  if (!exchange.answered && exchange.announced == nullptr) return absl::OkStatus();
  if (options_.shard != 0 || exchange.bundle != 0 || !options_.replay || !exchange.answered) {
    return InvalidRequest(
        exchange, "refers to an earlier result; only shard 0 accepts that, while it replays");
  }
  if (at.is_closed) return absl::OkStatus();
  absl::Status fits;
  const auto told = reported_.find(exchange.step);
  if (exchange.announced != nullptr) {
    fits = protocol::CheckPlan(*exchange.announced, options_.exchange.compression, options_.table);
    if (fits.ok() && exchange.announced->effective_step != exchange.step + job::kPlanDelay) {
      fits = absl::InvalidArgumentError(
          absl::StrCat("it begins with step ", exchange.announced->effective_step));
    }
  }
  if (fits.ok() && told != reported_.end() && !SamePlan(told->second, exchange.announced)) {
    fits = absl::InvalidArgumentError("another worker reported a different plan");
  }
  if (fits.ok()) return fits;
  return InvalidRequest(exchange, absl::StrCat("reports a compression plan for step ",
                                               exchange.step + job::kPlanDelay,
                                               ", which is invalid: ", fits.message()));
}

absl::Status PlanSchedule::CheckKnown(const protocol::ExchangeRequest& exchange,
                                      uint64_t open_step) const {
  protocol::PlanHistory known = known_;
  const absl::Status fits =
      exchange.plan == nullptr ? absl::OkStatus() : known.Learn(exchange.plan);
  if (!fits.ok()) return InvalidPlan(exchange, fits);
  // If a step closes without some rank, a shard may miss the plan. Later results announce it again.
  if (options_.exchange.quorum > 0 || options_.exchange.elastic()) return absl::OkStatus();
  // All ranks had reported their plans when the step began, and the newest plan applies.
  if (exchange.plan != nullptr && options_.shard != 0 && options_.exchange.control.measures() &&
      exchange.plan->id > known_.newest_id() && exchange.plan->effective_step <= open_step) {
    return InvalidRequest(
        exchange, absl::StrCat("carries compression plan ", exchange.plan->id, " for step ",
                               exchange.plan->effective_step, ", which has begun without it"));
  }
  if (exchange.keys_only || exchange.step < open_step) return absl::OkStatus();
  const Plan plan = known_.At(exchange.step);
  const uint64_t wanted = plan == nullptr ? 0 : plan->id;
  if (exchange.plan_id == wanted) return absl::OkStatus();
  return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                               "; in this step plan ", wanted, " holds"));
}

void PlanSchedule::Record(const protocol::ExchangeRequest& exchange, const Position& at) {
  if (lockstep_) {
    if (exchange.answered && !at.is_closed) reported_[exchange.step] = exchange.announced;
    if (exchange.plan == nullptr) return;
    const absl::Status learned = known_.Learn(exchange.plan);
    sluice::Check(learned.ok(), learned.message());
    return;
  }
  if (exchange.plan_id <= known_.newest_id()) return;
  // A rank's part of a checkpoint may contain a newer plan than shard 0's part. Therefore shard 0
  // gives its plans higher numbers than all numbers that it receives.
  if (maker_ != nullptr) {
    maker_->Took(exchange.plan_id);
  } else if (exchange.plan != nullptr) {
    Adopt(exchange.plan);
  }
}

// With a schedule, the step determines the plan. With a policy that measures, a plan that an
// earlier process announced stays in effect; if no worker knows it, the shard may replace it.
PlanSchedule::Plan PlanSchedule::Next(uint64_t step) {
  const auto told = reported_.find(step);
  if (options_.exchange.control.measures() && told != reported_.end()) {
    if (told->second != nullptr) maker_->Took(told->second->id);
    return told->second;
  }
  return maker_->Next(step, measured_.has_value() ? &*measured_ : nullptr);
}

void PlanSchedule::Make(uint64_t step, std::vector<ShardEffect>* out) {
  if (maker_ == nullptr || step == 0) return;
  Plan plan = Next(step);
  reported_.erase(step);
  measured_.reset();
  if (plan == nullptr) return;
  LearnMade(std::move(plan), step, out);
}

void PlanSchedule::Follow(const Plan& plan, std::vector<ShardEffect>* out) {
  if (plan == nullptr || plan->id <= known_.newest_id()) return;
  LearnMade(PlanInRack(*plan), plan->effective_step - job::kPlanDelay, out);
}

void PlanSchedule::LearnMade(Plan plan, uint64_t step, std::vector<ShardEffect>* out) {
  if (!lockstep_) {
    Adopt(plan);
  } else if (const absl::Status known = known_.Learn(plan); !known.ok()) {
    out->emplace_back(Alarm{absl::StrCat("compression plan ", plan->id, " of step ", step,
                                         " is invalid: ", known.message())});
    return;
  }
  out->emplace_back(PlanMade{std::move(plan)});
}

void PlanSchedule::Begin(uint64_t step) {
  if (!lockstep_) return Adopt(known_.newest());
  known_.ForgetBefore(step);
  Use(known_.At(step));
}

// Uses the plan at once. No other plan is needed any more.
void PlanSchedule::Adopt(Plan plan) {
  if (plan == nullptr) return;
  Use(plan);
  known_.Replace(std::move(plan));
}

PlanSchedule::Plan PlanSchedule::AnnouncedIn(uint64_t step, uint32_t bundle,
                                             uint64_t plan_id) const {
  if (options_.shard != 0 || bundle != 0) return nullptr;
  if (lockstep_) return known_.Beginning(step + job::kPlanDelay);
  return plan_id == coded_by_ ? nullptr : known_.newest();
}

void PlanSchedule::Use(const Plan& plan) {
  if (plan == nullptr || plan->id == coded_by_) return;
  const absl::Status recoded = downlink_->Recode(protocol::SpecsUnder(
      plan.get(), protocol::Direction::kDownlink, compress::Compressor::kShardSender, base_));
  sluice::Check(recoded.ok(), recoded.message());
  if (options_.rule_momentum.has_value() && replica_->has_value()) {
    (*replica_)->SetMomentum(plan->momentum);
  }
  coded_by_ = plan->id;
}

}  // namespace sluice::server
