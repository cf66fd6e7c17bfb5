// SPDX-License-Identifier: Apache-2.0
// WeightsRelay: serves a job's weights to followers from one copy. It receives each update once
// from the job, or from another relay, whatever the number of its own followers. It asks for a type
// once a follower does. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/rpc/update_receiver.h"
#include "follow/rpc/weights_client.h"
#include "follow/rpc/weights_hub.h"
#include "net/grpc/transport.h"
#include "protocol/weights.h"

namespace sluice::follow {

class WeightsRelay {
 public:
  struct Options {
    std::string address{};  // HOST:PORT of the job's shard 0, or of another relay.
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    uint32_t followers_max = 64;
    // How long to wait for a server that does not answer.
    absl::Duration patience = absl::Seconds(60);
  };

  // Waits for the job. Fails with UNAVAILABLE after `patience`, and otherwise with the server's
  // reason.
  static absl::StatusOr<std::unique_ptr<WeightsRelay>> Start(Options options, const Clock* clock,
                                                             const Logger& logger);
  ~WeightsRelay();

  WeightsHub* hub() { return hub_.get(); }
  // Returns the description in which this relay serves all shards.
  absl::StatusOr<protocol::WeightsDescription> Describe() const;
  // Returns nullopt while the relay runs, then OK if the job has ended, or the reason for the
  // failure. Call this repeatedly: it also moves on to another run of the job.
  std::optional<absl::Status> Outcome();
  // True if no follower is connected.
  bool drained() const { return hub_->figures().followers == 0; }

 private:
  WeightsRelay(Options options, const Clock* clock, Logger logger)
      : options_(std::move(options)),
        clock_(clock),
        logger_(std::move(logger)),
        client_(options_.transport, options_.address, clock_) {}

  // Asks once for the job's description, and prepares the hub.
  absl::Status Connect();
  void Request(compress::ElementType type);
  void Ended(const absl::Status& status);

  const Options options_;
  const Clock* const clock_;
  const Logger logger_;
  WeightsClient client_;  // It asks for descriptions.
  std::unique_ptr<WeightsHub> hub_;
  mutable Mutex mutex_;
  protocol::WeightsDescription job_ ABSL_GUARDED_BY(mutex_);
  std::set<compress::ElementType> requested_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<UpdateReceiver>> receivers_ ABSL_GUARDED_BY(mutex_);
  Mutex outcome_mutex_;  // Acquire after mutex_. Receivers' threads never acquire mutex_.
  size_t running_ ABSL_GUARDED_BY(outcome_mutex_) = 0;  // Receivers whose shard has more to send.
  absl::Status failure_ ABSL_GUARDED_BY(outcome_mutex_);
  bool had_receivers_ ABSL_GUARDED_BY(outcome_mutex_) = false;
};

}  // namespace sluice::follow
