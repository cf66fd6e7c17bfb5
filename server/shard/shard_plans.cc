#include "server/shard/shard_plans.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "job/support.h"

namespace sluice::server {

absl::StatusOr<ShardPlans> PrepareToPlan(const ShardOptions& options, size_t bundles) {
  absl::StatusOr<std::unique_ptr<PlanMaker>> maker = PlanMaker::Create(
      options.control, options.compression, options.table,
      static_cast<uint32_t>(options.incarnations.size()), options.momentum,
      ShareOfElements(options), job::InLockstep(options.mode) && options.quorum == 0);
  if (!maker.ok()) return maker.status();
  ShardPlans plans;
  if (*maker == nullptr) return plans;
  if (bundles == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are fewer chunks than shards: shard ", options.shard,
                     " holds nothing and would never hear of a plan; lower `shards` or "
                     "compression.chunk_bytes"));
  }
  // What goes on takes the plans of its snapshot instead.
  const absl::Status known = plans.known.Learn((*maker)->First());
  Check(known.ok(), "the first plan contradicts no other");
  if (options.shard == 0) plans.maker = *std::move(maker);
  return plans;
}

absl::Status RestorePlans(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                          ShardPlans* plans) {
  if (!options.control.makes_plans()) {
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
  absl::StatusOr<protocol::PlanBook> book =
      protocol::PlanBook::Of(snapshot.plans, options.compression, options.table);
  if (!book.ok()) return book.status();
  plans->known = *std::move(book);
  if (plans->maker != nullptr) plans->maker->Resume(plans->known.newest_id(), snapshot.step + 1);
  return absl::OkStatus();
}

void AddMadePlan(protocol::PlanBook::Plan plan, uint64_t step, ShardPlans* plans,
                 std::vector<ShardEffect>* effects) {
  if (plan == nullptr) return;
  // With what workers have said of plans, which need not be true.
  const absl::Status known = plans->known.Learn(plan);
  if (!known.ok()) {
    effects->emplace_back(Alarm{absl::StrCat("compression plan ", plan->id, " of step ", step,
                                             " cannot be: ", known.message())});
    return;
  }
  effects->emplace_back(PlanMade{std::move(plan)});
}

void TakeUpPlan(const protocol::PlanBook::Plan& plan, const ShardOptions& options,
                absl::Span<const compress::ChunkConfig> base, compress::Compressor* downlink,
                std::optional<Replica>* replica, ShardPlans* plans) {
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
