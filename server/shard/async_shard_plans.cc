// How a shard whose ranks do not wait for each other takes part in compression plans. There is no
// step that all begin together, and none is needed: every contribution is an update of its own,
// frames say how they are coded, and what is published is the same for all. So a plan holds for
// whoever has it from when he has it. Shard 0 makes plans as the slowest rank moves on, and says
// the newest with results to those who code by another; workers bring it to the other shards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/async_shard.h"

namespace sluice::server {
namespace {

// A number so far ahead of all plans is none of a plan.
constexpr uint64_t kNumbersAhead = uint64_t{1} << 40;

}  // namespace

absl::Status AsyncShard::CheckPlans(const protocol::Exchange& exchange) const {
  if (exchange.answered || exchange.announced != nullptr) {
    return InvalidRequest(exchange,
                          "speaks of a result that was there before; no rank of this "
                          "mode goes through steps again");
  }
  const bool speaks = exchange.plan_id != 0 || exchange.plan != nullptr;
  if (!options_.control.makes_plans()) {
    if (!speaks) return absl::OkStatus();
    return InvalidRequest(exchange, "speaks of a compression plan, and this job makes none");
  }
  // That after a rollback a rank has a plan that shard 0 has not made yet is as it should be.
  if (exchange.plan_id > plans_.known.newest_id() + kNumbersAhead) {
    return InvalidRequest(exchange, absl::StrCat("is coded by plan ", exchange.plan_id,
                                                 "; the newest is ", plans_.known.newest_id()));
  }
  if (exchange.plan == nullptr) return absl::OkStatus();
  absl::Status fits = protocol::CheckPlan(*exchange.plan, options_.compression, options_.table);
  if (fits.ok() && exchange.plan->id != exchange.plan_id) {
    fits = absl::InvalidArgumentError(absl::StrCat("it is coded by plan ", exchange.plan_id));
  }
  if (fits.ok()) return fits;
  return InvalidRequest(exchange, absl::StrCat("brings compression plan ", exchange.plan->id,
                                               ", which cannot be: ", fits.message()));
}

// From a request that was checked. Numbers of shard 0 go on after every one that it hears of: a
// rank's part of a checkpoint may know a plan that came after shard 0's.
void AsyncShard::LearnPlan(const protocol::Exchange& exchange) {
  if (exchange.plan_id <= plans_.known.newest_id()) return;
  if (plans_.maker != nullptr) {
    plans_.maker->Took(exchange.plan_id);
  } else if (exchange.plan != nullptr) {
    TakeUp(exchange.plan);
  }
}

void AsyncShard::MakePlans(Effects* out) {
  if (plans_.maker == nullptr) return;
  for (const uint64_t open = open_step(); next_plan_ < open; ++next_plan_) {
    protocol::PlanBook::Plan plan =
        plans_.maker->Next(next_plan_, plans_.measured.has_value() ? &*plans_.measured : nullptr);
    plans_.measured.reset();
    if (plan == nullptr) continue;
    TakeUp(plan);
    out->emplace_back(PlanMade{std::move(plan)});
  }
}

void AsyncShard::TakeUp(protocol::PlanBook::Plan plan) {
  if (plan == nullptr) return;
  TakeUpPlan(plan, options_, downlink_base_, &downlink_, &plan_.replica, &plans_);
  plans_.known.Replace(std::move(plan));
}

// Plans reckon with one frame down in each step. A result brings as many as were published since
// the last one of its rank, so that a link carries so many times less of each.
void AsyncShard::Measured(const StepMeasurements& measured) {
  if (plans_.maker == nullptr) return;
  plans_.measured = measured;
  const double frames =
      static_cast<double>(brought_) / static_cast<double>(std::max<uint64_t>(brought_in_, 1));
  brought_ = brought_in_ = 0;
  if (frames > 1) ScaleTransfers(1, 1 / frames, &*plans_.measured);
}

}  // namespace sluice::server
