// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/membership.h"

#include "absl/strings/str_cat.h"
#include "net/grpc/transport.h"
#include "protocol/membership.h"
#include "protocol/wire/membership_messages.h"

namespace sluice::worker {
namespace {

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the coordinator's answer to Join is invalid: ", what,
                   "; do worker and server run the same version and job file?"));
}

absl::Status ReadShards(const protocol::JoinGrant& grant, uint32_t shards,
                        std::vector<ShardSeat>* seats) {
  if (grant.shards.size() != shards) {
    return Refuse(absl::StrCat("it names ", grant.shards.size(), " shards, the job has ", shards));
  }
  seats->resize(shards);
  for (const protocol::ShardPlace& place : grant.shards) {
    if (place.shard >= shards || place.address.empty() || !(*seats)[place.shard].address.empty()) {
      return Refuse(absl::StrCat("shard ", place.shard, " at \"", place.address, "\""));
    }
    (*seats)[place.shard] = {place.address, place.server_incarnation};
  }
  return absl::OkStatus();
}

// The bundle size limit ensures that a message can hold twice a dense bundle.
static_assert(2 * sizeof(float) * (protocol::kBundleElementsMax + protocol::kChunkElementsMax) <
              net::kMessageBytesMax);

// Checks the fields that do not depend on the table or the number of shards.
absl::Status CheckGrant(const protocol::JoinGrant& grant, uint32_t rank) {
  if (grant.rank != rank || rank >= grant.world_size) {
    return Refuse(absl::StrCat("rank ", grant.rank, " of ", grant.world_size, " for rank ", rank));
  }
  const int64_t lease_ms = absl::ToInt64Milliseconds(grant.lease);
  const int64_t heartbeat_ms = absl::ToInt64Milliseconds(grant.heartbeat);
  if (grant.first_step == 0 || grant.window_bytes == 0 || lease_ms == 0 || heartbeat_ms == 0) {
    return Refuse(absl::StrCat("first step ", grant.first_step, ", window ", grant.window_bytes,
                               " bytes, lease ", lease_ms, " ms, heartbeat ", heartbeat_ms,
                               " ms; none of them may be 0"));
  }
  if (grant.restore_step > 0 &&
      (grant.first_step != grant.restore_step + 1 || !grant.parameters_agree)) {
    return Refuse(absl::StrCat("it restores the checkpoint after step ", grant.restore_step,
                               " and begins with step ",
                               grant.parameters_agree ? grant.first_step : 0));
  }
  return absl::OkStatus();
}

absl::Status CheckMembers(const protocol::JoinGrant& grant) {
  for (size_t i = 0; i < grant.members.size(); ++i) {
    const uint32_t member = grant.members[i];
    if (member < grant.world_size && (i == 0 || grant.members[i - 1] < member)) continue;
    return Refuse(
        absl::StrCat("members out of order, or a rank ", member, " of ", grant.world_size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Membership> ReadJoinReply(const v1::JoinReply& reply,
                                         const protocol::TensorTable& table, uint32_t rank,
                                         uint32_t shards,
                                         const protocol::CompressionSpec& compression) {
  const absl::StatusOr<protocol::JoinGrant> grant = protocol::GrantFromProto(reply);
  if (!grant.ok()) return Refuse(grant.status().message());
  if (absl::Status valid = CheckGrant(*grant, rank); !valid.ok()) return valid;
  Membership membership;
  if (absl::Status read = ReadShards(*grant, shards, &membership.shards); !read.ok()) return read;
  absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(table, shards, grant->layout, protocol::WholeRows(compression, table));
  if (!layout.ok()) return Refuse(layout.status().message());
  if (absl::Status valid = CheckMembers(*grant); !valid.ok()) return valid;
  membership.layout = *std::move(layout);
  membership.sender = {.job_uid = grant->job_uid,
                       .term = grant->term,
                       .rank = rank,
                       .incarnation = grant->incarnation,
                       .generation = grant->generation,
                       .server_incarnation = grant->server_incarnation};
  membership.world_size = grant->world_size;
  membership.first_step = grant->first_step;
  membership.parameters_agree = grant->parameters_agree;
  membership.restore_step = grant->restore_step;
  membership.restore_world_size = grant->restore_world_size;
  membership.restore_parts = grant->restore_parts;
  membership.late_joiner = grant->late_joiner;
  membership.members = grant->members;
  if (grant->plan != nullptr) membership.plans.push_back(*grant->plan);
  membership.window_bytes = grant->window_bytes;
  membership.lease = grant->lease;
  membership.heartbeat = grant->heartbeat;
  return membership;
}

}  // namespace sluice::worker
