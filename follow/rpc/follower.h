// SPDX-License-Identifier: Apache-2.0
// Follower: keeps a copy of a running job's weights, exact in the type that it asked for. A
// receiver for each shard takes updates; Next completes one version after another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/model_assembly.h"
#include "follow/rpc/update_receiver.h"
#include "follow/rpc/weights_client.h"
#include "follow/weights_version.h"
#include "net/grpc/transport.h"
#include "protocol/weights.h"

namespace sluice::follow {

class Follower {
 public:
  struct Options {
    std::string address{};  // HOST:PORT of the job's shard 0, or of a relay.
    compress::ElementType type = compress::ElementType::kBfloat16;
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    // How long to wait for a server that does not answer.
    absl::Duration patience = absl::Seconds(60);
  };
  // A complete version of the model.
  struct Version {
    WeightsVersion version;
    absl::Span<const std::byte> weights;  // Valid until the next call of Next.
    ModelAssembly::Applied applied;       // The updates that led to it from the version before.
  };

  Follower(Options options, const Clock* clock, Logger logger);
  ~Follower();

  // Waits for the job and reads its description. Fails with UNAVAILABLE after `patience`, and
  // otherwise with the server's reason.
  absl::Status Connect();
  // The job that Connect found. Next may replace it when another run begins.
  const protocol::WeightsDescription& job() const { return job_; }
  const TensorLayout& model() const {
    MutexLock lock(&mutex_);
    return model_->model();
  }

  // Waits for the next complete version. A caller that takes long gets a later version next, not
  // each one. No value means that the job has ended and the last version was returned. Fails with
  // UNAVAILABLE if a shard did not answer for `patience`, with CANCELLED after Cancel, and
  // otherwise with the server's reason.
  absl::StatusOr<std::optional<Version>> Next();
  // Makes Next fail. Thread-safe.
  void Cancel();

 private:
  absl::StatusOr<std::optional<Version>> NextOfRun();
  void StartReceivers();
  void StopReceivers();
  UpdateReceiver::Callbacks CallbacksOf(size_t index);
  // Takes an update once the model has space for it. Returns false if the call must end.
  bool Take(size_t index, uint32_t term, std::vector<std::byte> update);

  const Options options_;
  const Clock* const clock_;
  const Logger logger_;
  WeightsClient client_;  // It asks for descriptions.
  // The next three are changed only while there are no receivers.
  protocol::WeightsDescription job_;
  std::vector<uint64_t> update_bytes_max_;                  // By shard.
  std::vector<std::unique_ptr<UpdateReceiver>> receivers_;  // One per shard that has weights.
  mutable Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<ModelAssembly> model_ ABSL_PT_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;     // Receivers whose shard has more to send.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;  // The receivers must end.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::follow
