#include "server/shard/plan_schedule.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "job/support.h"

namespace sluice::server {

absl::StatusOr<PlanSchedule> PrepareToPlan(const ShardOptions& options, size_t bundles) {
  absl::StatusOr<std::unique_ptr<PlanMaker>> maker = PlanMaker::Create(
      options.control, options.compression, options.table,
      static_cast<uint32_t>(options.incarnations.size()), options.momentum,
      ShareOfElements(options), job::InLockstep(options.mode) && options.quorum == 0);
  if (!maker.ok()) return maker.status();
  PlanSchedule plans;
  if (*maker == nullptr) return plans;
  if (bundles == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are fewer chunks than shards: shard ", options.shard,
                     " holds nothing and would never receive a plan; lower `shards` or "
                     "compression.chunk_bytes"));
  }
  // A restored shard replaces this plan with the plans of its snapshot.
  const absl::Status known = plans.known.Learn((*maker)->First());
  Check(known.ok(), "the first plan contradicts no other");
  if (options.shard == 0) plans.maker = *std::move(maker);
  return plans;
}

absl::Status RestorePlans(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                          PlanSchedule* plans) {
  if (!options.control.makes_plans()) {
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
      protocol::PlanHistory::Of(snapshot.plans, options.compression, options.table);
  if (!book.ok()) return book.status();
  plans->known = *std::move(book);
  if (plans->maker != nullptr) plans->maker->Resume(plans->known.newest_id(), snapshot.step + 1);
  return absl::OkStatus();
}

void AddMadePlan(protocol::PlanHistory::Plan plan, uint64_t step, PlanSchedule* plans,
                 std::vector<ShardEffect>* effects) {
  if (plan == nullptr) return;
  // The plan may contradict plans that workers have reported.
  const absl::Status known = plans->known.Learn(plan);
  if (!known.ok()) {
    effects->emplace_back(Alarm{absl::StrCat("compression plan ", plan->id, " of step ", step,
                                             " is invalid: ", known.message())});
    return;
  }
  effects->emplace_back(PlanMade{std::move(plan)});
}

void AdoptPlan(const protocol::PlanHistory::Plan& plan, const ShardOptions& options,
               absl::Span<const compress::ChunkConfig> base, compress::Compressor* downlink,
               std::optional<ShardParameters>* replica, PlanSchedule* plans) {
  if (plan == nullptr || plan->id == plans->coded_by) return;
  const absl::Status recoded = downlink->Recode(protocol::SpecsUnder(
      plan.get(), protocol::Direction::kDownlink, compress::Compressor::kShardSender, base));
  Check(recoded.ok(), recoded.message());
  if (options.rule_momentum.has_value() && replica->has_value()) {
    (*replica)->SetMomentum(plan->momentum);
  }
  plans->coded_by = plan->id;
}

}  // namespace sluice::server
