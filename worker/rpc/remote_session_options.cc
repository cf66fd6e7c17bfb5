// SPDX-License-Identifier: Apache-2.0
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
  options.exchange = spec.exchange;
  options.server = spec.server;
  options.shards_update = job::ShardOptimizer(spec).has_value();
  options.followers = spec.followers;
  options.checkpoint = spec.checkpoint;
  options.rack_of = spec.part.rack_of;
  options.software_version = SLUICE_VERSION;
  options.logger = Logger(absl::StrCat("worker-", rank));
  return options;
}

}  // namespace sluice::worker
