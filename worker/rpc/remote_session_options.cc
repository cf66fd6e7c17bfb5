#include "worker/rpc/remote_session_options.h"

#include "absl/strings/str_cat.h"
#include "job/job_spec.h"

namespace sluice::worker {

RemoteSessionOptions OptionsFromJob(const job::JobSpec& spec, absl::string_view coordinator,
                                    uint32_t rank) {
  RemoteSessionOptions options;
  options.coordinator = std::string(coordinator);
  options.job_name = spec.name;
  options.job_hash = spec.hash;
  options.rank = rank;
  options.shards = spec.shards;
  options.compression = spec.compression;
  options.buffer_sync_interval = spec.buffer_sync_interval;
  options.lockstep = job::InLockstep(spec.mode);
  options.shards_update = job::ShardOptimizer(spec).has_value();
  options.makes_plans = spec.control.makes_plans();
  options.quorum = spec.quorum > 0;
  options.checkpoint = spec.checkpoint;
  options.elastic = spec.membership == job::Membership::kElastic;
  options.rack_of = spec.rack_of;
  options.rejoin_timeout = spec.server.rejoin_timeout;
  options.join_timeout = spec.server.join_timeout;
  options.connect_timeout = spec.server.connect_timeout;
  options.software_version = SLUICE_VERSION;
  options.logger = Logger(absl::StrCat("worker-", rank));
  return options;
}

}  // namespace sluice::worker
