// SPDX-License-Identifier: Apache-2.0
// LocalSession: a Session for a job of one process. It runs both codecs with their error feedback,
// as a worker and its shards would, and sends nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/types/span.h"
#include "job/exchange_spec.h"
#include "worker/core/job_client.h"

namespace sluice::worker {

// The parameters and the optimizer of a job's shards.
class ShardUpdates {
 public:
  virtual ~ShardUpdates() = default;
  // Sets the initial values of a chunk of the layout. Workers start with the same values.
  virtual void Set(size_t chunk, absl::Span<const float> values) = 0;
  // Makes one update of the chunk with a finite gradient, and returns what workers lack since the
  // last Publish. The result is valid until the next call.
  virtual absl::Span<const float> Update(size_t chunk, double rate,
                                         absl::Span<const float> gradient) = 0;
  // Adds the frames that workers receive to the values that workers have.
  virtual void Publish(size_t chunk, absl::Span<const std::byte> frames) = 0;
};

struct LocalSessionOptions {
  job::ExchangeSpec exchange{};
  // In a job whose shards do the updates: makes their state for chunks of these sizes, which are 0
  // for chunks of buffers. Otherwise empty.
  std::function<std::unique_ptr<ShardUpdates>(absl::Span<const uint32_t>)> make_updates{};
};

// The session does not support checkpoints, and its traffic counts only the bytes of frames.
std::unique_ptr<JobClient> MakeLocalClient(LocalSessionOptions options);

}  // namespace sluice::worker
