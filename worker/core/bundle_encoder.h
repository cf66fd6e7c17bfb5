// SPDX-License-Identifier: Apache-2.0
// BundleEncoder: encodes the gradients of a worker's bundles into frames. Owns the codecs,
// thresholds and residuals, and the threads that help with a task. Not thread-safe: it belongs to
// one encoder thread. The Pipeline, a separate class, hands out its tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/parallel.h"
#include "compress/compressor.h"
#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"
#include "protocol/stage_times.h"
#include "protocol/tensor_table.h"
#include "worker/core/gradient_view.h"
#include "worker/core/late_work.h"
#include "worker/core/quality_meter.h"

namespace sluice::worker {

// A bundle with all of its gradients. The Pipeline that made the task owns `chunks`. The caller of
// Submit owns the gradients.
struct EncodeTask {
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;
  bool last_of_step = false;
  bool nothing = false;  // Skip this bundle; residuals do not change.
  absl::Span<const uint32_t> chunks;
  std::vector<GradientView> gradients;  // One per chunk.
  // The last published frames of these chunks, one string each. Empty if nothing was published
  // since the last task.
  absl::Span<const std::string> published = {};
  // Compression plan of the step. Null if the step has none.
  std::shared_ptr<const protocol::CompressionPlan> plan = {};
  std::vector<ReturnedWork> returned = {};  // For the residuals, before the encoding.
};

struct EncodedBundle {
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;
  // A gradient was not finite, so the bundle has no frames. The residual of that gradient's chunk
  // is unchanged. The residuals of the other chunks already include their gradients.
  bool skipped = false;
  uint32_t skipped_tensor = 0;      // The first tensor with a non-finite gradient.
  std::vector<std::string> frames;  // One per chunk.
  absl::Status failure{};           // The device's error. The encoder cannot be used after it.
};

struct BundleEncoderOptions {
  uint64_t quality_interval = 0;  // As in QualityMeter.
  // Encodes gradients in its memory. Must outlive the encoder. Null if all are in host memory.
  compress::EncodingDevice* device = nullptr;
  // Threads that encode, with the caller's. The frames do not depend on their number.
  size_t threads = 1;
  // Gets the processor time of all of these threads. Must outlive the encoder. May be null.
  protocol::StageTimes* stages = nullptr;
};

class BundleEncoder {
 public:
  // The uplink codecs of each tensor follow `compression` until a task has a plan.
  BundleEncoder(const protocol::TensorTable& table, const protocol::Layout& layout,
                const protocol::CompressionSpec& compression, uint32_t rank,
                const BundleEncoderOptions& options = {});

  // Encodes a task. Step 0 carries parameters: its frames are lossless and leave residuals and
  // thresholds unchanged.
  EncodedBundle Encode(const EncodeTask& task);

  // Observes published frames for `chunks` (one string each) that were not part of a task. Call it
  // once for each result, between steps.
  void Observe(absl::Span<const uint32_t> chunks, absl::Span<const std::string> published);
  // Adds what results left out of contributions, if it was not part of a task, to the residuals.
  // Copies residuals from the device to the host. Call between steps, before Save. Returns the
  // device's errors.
  absl::Status Settle(LateParts late);
  // Call between steps. The saved state excludes results that were published but not observed. Its
  // residuals contain the contributions that are in no result yet.
  compress::SavedCompressor Save() const;
  // Continues bit for bit like the saved encoder. With `plans`, also restores the codecs of the
  // saved state: those of the previous step's plan, or of an earlier one if nothing was encoded
  // since. Fails with INVALID_ARGUMENT, which names the difference, if the state belongs to another
  // job. After such a failure, only the codecs of chunks may have changed.
  absl::Status Restore(const compress::SavedCompressor& saved, bool plans = false);
  // As Restore, for a job whose shards start anew. Call it before the first Encode.
  absl::Status RestoreForNewShards(compress::SavedCompressor saved);

  // Returns the last measured coding losses of trained tensors. Excludes compensators with a memory
  // on both sides (ef21, diana), because their frames are not gradients.
  CodingQuality quality() const { return meter_.quality(); }
  const compress::Compressor& compressor() const { return compressor_; }

 private:
  absl::Status Return(absl::Span<const ReturnedWork> returned);
  void Adopt(const protocol::CompressionPlan& plan);
  // If a gradient is not finite, sets `*refused` to its position in the task.
  absl::Status EncodeFrames(const EncodeTask& task, size_t* refused,
                            std::vector<std::vector<std::byte>>* frames);
  absl::Status EncodeParameters(const EncodeTask& task, size_t* refused,
                                std::vector<std::vector<std::byte>>* frames);
  bool IsMeasured(uint32_t chunk, uint64_t step) const;
  // Measures the frames that EncodeFrames made.
  absl::Status MeasureQuality(const EncodeTask& task);

  const std::vector<compress::ChunkConfig> base_;  // From the job file.
  const uint32_t rank_;
  std::vector<ReturnedWork> pending_;  // For Save, until the next Encode.
  uint64_t coded_by_ = 0;  // Number of the last adopted plan; 0 if none or after Restore.
  compress::Compressor compressor_;
  const uint32_t trained_;  // Number of trained tensors.
  QualityMeter meter_;
  compress::EncodingDevice* const device_;
  protocol::StageTimes* const stages_;
  std::unique_ptr<Parallel> parallel_;
  std::vector<GradientReader> readers_;  // By lane.
  // Memory of the last task, kept for reuse.
  std::vector<compress::DeviceGradient> on_device_;
  // The task's gradients. The chunks that the host encodes or measures point to host copies.
  std::vector<GradientView> views_;
  std::vector<std::vector<std::byte>> frames_;
};

}  // namespace sluice::worker
