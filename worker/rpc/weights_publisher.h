// SPDX-License-Identifier: Apache-2.0
// WeightsPublisher: gives followers the parameters of a job whose workers keep them. Rank 0 has
// one. It copies the parameters in the types that followers want, and its own thread encodes them,
// so training waits only for the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "follow/model_assembly.h"
#include "follow/rpc/weights_hub.h"
#include "protocol/membership.h"
#include "protocol/tensor_table.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session_options.h"
#include "worker/rpc/weights_upload.h"

namespace sluice::worker {

class WeightsPublisher {
 public:
  // Returns null if this worker does not publish: the job has no followers, the shards keep the
  // parameters, or this is not rank 0. Logs a warning if followers cannot read the model.
  static std::unique_ptr<WeightsPublisher> Create(const RemoteSessionOptions& options,
                                                  const protocol::TensorTable& table,
                                                  const Membership& membership);

  // Returns true if a follower wants the parameters after `step`. Thread-safe, as are the functions
  // below Offer.
  bool Wants(uint64_t step, bool is_last) const;
  // Offers the parameters after `step`, with one span per tensor in storage order. `is_last` means
  // that no version follows. Call it on one thread.
  void Offer(uint64_t step, absl::Span<const absl::Span<const float>> parameters, bool is_last);
  // Other processes now serve these shards.
  void GoTo(const std::vector<protocol::ShardPlace>& places);
  // Waits until the shards have all offered versions that their followers want, but at most
  // `limit`.
  void Finish(absl::Duration limit);
  // Ends the uploads.
  void Cancel();

 private:
  WeightsPublisher(const RemoteSessionOptions& options, const Membership& membership,
                   follow::ModelParts parts);

  const Clock* const clock_;
  const uint32_t term_;
  const uint64_t every_;
  const follow::ModelParts parts_;
  follow::WeightsHub hub_;
  // The step after which each type was offered last.
  std::map<compress::ElementType, uint64_t> offered_;
  std::vector<std::unique_ptr<WeightsUpload>> uploads_;
  std::vector<uint32_t> shard_of_;  // By upload.
};

}  // namespace sluice::worker
