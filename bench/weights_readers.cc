// SPDX-License-Identifier: Apache-2.0
// weights_readers HOST:PORT COUNT: COUNT followers of a job that take each update and drop it, for
// followers.py. Followers on other machines would apply the updates there. Says "ready" once each
// has an update of each shard, and runs until it is killed.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "follow/rpc/update_parts.h"
#include "follow/rpc/update_receiver.h"
#include "follow/rpc/weights_client.h"
#include "protocol/weights.h"

namespace sluice::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "weights_readers: %s\n", std::string(status.message()).c_str());
  return 1;
}

int Run(const std::string& address, size_t count) {
  const SteadyClock clock;
  const std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
  follow::WeightsClient client(transport, address, &clock);
  const absl::StatusOr<protocol::WeightsDescription> job = client.AwaitDescription(kPatience);
  if (!job.ok()) return Fail(job.status());
  const absl::StatusOr<follow::ModelParts> parts = protocol::PartsOfWeights(*job);
  if (!parts.ok()) return Fail(parts.status());
  std::vector<std::unique_ptr<follow::UpdateReceiver>> receivers;
  std::atomic<size_t> without_update = count * job->shards();
  for (size_t i = 0; i < count * job->shards(); ++i) {
    const auto shard = static_cast<uint32_t>(i % job->shards());
    const compress::ElementType type = job->types.front();
    auto has_update = std::make_shared<bool>(false);
    receivers.push_back(std::make_unique<follow::UpdateReceiver>(
        follow::UpdateReceiver::Options{
            .transport = transport,
            .address = job->addresses[shard],
            .query = {.job_uid = job->job_uid,
                      .shard = shard,
                      .type = type,
                      .update_bytes_max = follow::LargestUpdate(*parts, shard, type)},
            .patience = kPatience},
        follow::UpdateReceiver::Callbacks{
            .have = [] { return std::nullopt; },
            .take =
                [&without_update, has_update](uint32_t, const std::vector<std::byte>&) {
                  if (!*has_update && --without_update == 0) {
                    std::puts("ready");
                    std::fflush(stdout);
                  }
                  *has_update = true;
                  return true;
                },
            .ended = [](const absl::Status& status) { std::exit(Fail(status)); }},
        &clock));
  }
  for (;;) ::pause();
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  size_t count = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &count) || count == 0 || count > 1000) {
    std::fputs("usage: weights_readers HOST:PORT COUNT\n", stderr);
    return 2;
  }
  return sluice::bench::Run(argv[1], count);
}
