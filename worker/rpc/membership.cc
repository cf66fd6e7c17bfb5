#include "worker/rpc/membership.h"

#include "absl/strings/str_cat.h"
#include "net/grpc/transport.h"
#include "protocol/wire/exchange_messages.h"
#include "protocol/wire/plan_message.h"

namespace sluice::worker {
namespace {

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the coordinator's answer to Join makes no sense: ", what,
                   "; do worker and server run the same version and job file?"));
}

absl::Status ReadShards(const v1::JoinReply& reply, uint32_t shards,
                        std::vector<ShardSeat>* seats) {
  if (static_cast<uint32_t>(reply.shards_size()) != shards) {
    return Refuse(absl::StrCat("it names ", reply.shards_size(), " shards, the job has ", shards));
  }
  seats->resize(shards);
  for (const v1::ShardAddress& shard : reply.shards()) {
    if (shard.shard() >= shards || shard.address().empty() ||
        !(*seats)[shard.shard()].address.empty()) {
      return Refuse(absl::StrCat("shard ", shard.shard(), " at \"", shard.address(), "\""));
    }
    (*seats)[shard.shard()] = {shard.address(), shard.server_incarnation()};
  }
  return absl::OkStatus();
}

// Bundles are cut so that a dense one fits twice in a message.
static_assert(2 * sizeof(float) * (protocol::kBundleElementsMax + protocol::kChunkElementsMax) <
              net::kMessageBytesMax);

}  // namespace

absl::StatusOr<Membership> ReadJoinReply(const v1::JoinReply& reply,
                                         const protocol::TensorTable& table, uint32_t rank,
                                         uint32_t shards,
                                         const protocol::CompressionSpec& compression) {
  if (reply.rank() != rank || rank >= reply.world_size()) {
    return Refuse(
        absl::StrCat("rank ", reply.rank(), " of ", reply.world_size(), " for rank ", rank));
  }
  if (reply.first_step() == 0 || reply.window_bytes() == 0 || reply.lease_ms() == 0 ||
      reply.heartbeat_ms() == 0) {
    return Refuse(absl::StrCat("first step ", reply.first_step(), ", window ", reply.window_bytes(),
                               " bytes, lease ", reply.lease_ms(), " ms, heartbeat ",
                               reply.heartbeat_ms(), " ms; none of them may be 0"));
  }
  if (reply.restore_step() > 0 &&
      (reply.first_step() != reply.restore_step() + 1 || !reply.parameters_agree())) {
    return Refuse(absl::StrCat("it restores the checkpoint after step ", reply.restore_step(),
                               " and begins with step ",
                               reply.parameters_agree() ? reply.first_step() : 0));
  }
  Membership membership;
  const absl::Status seats = ReadShards(reply, shards, &membership.shards);
  if (!seats.ok()) return seats;
  absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(table, shards,
                            {.chunk_elements = reply.layout().chunk_elements(),
                             .bundle_elements = reply.layout().bundle_elements()},
                            protocol::WholeRows(compression, table));
  if (!layout.ok()) return Refuse(layout.status().message());
  membership.layout = *std::move(layout);
  membership.sender = {.job_uid = reply.job_uid(),
                       .term = reply.term(),
                       .rank = rank,
                       .incarnation = reply.incarnation(),
                       .generation = reply.generation(),
                       .server_incarnation = reply.server_incarnation()};
  membership.world_size = reply.world_size();
  membership.first_step = reply.first_step();
  membership.parameters_agree = reply.parameters_agree();
  membership.restore_step = reply.restore_step();
  membership.restore_world_size = reply.restore_world_size();
  for (const v1::CheckpointPart& part : reply.restore_parts()) {
    membership.restore_parts.push_back(protocol::TakePart(part));
  }
  membership.learner = reply.learner();
  membership.members = {reply.members().begin(), reply.members().end()};
  for (size_t i = 0; i < membership.members.size(); ++i) {
    const uint32_t member = membership.members[i];
    if (member < reply.world_size() && (i == 0 || membership.members[i - 1] < member)) continue;
    return Refuse(
        absl::StrCat("members out of order, or a rank ", member, " of ", reply.world_size()));
  }
  if (reply.has_plan()) {
    absl::StatusOr<protocol::CompressionPlan> plan = protocol::PlanFromProto(reply.plan());
    if (!plan.ok()) return Refuse(plan.status().message());
    membership.plans.push_back(*std::move(plan));
  }
  membership.window_bytes = reply.window_bytes();
  membership.lease = absl::Milliseconds(reply.lease_ms());
  membership.heartbeat = absl::Milliseconds(reply.heartbeat_ms());
  return membership;
}

}  // namespace sluice::worker
