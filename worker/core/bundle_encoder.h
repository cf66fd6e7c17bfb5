// BundleEncoder: turns the gradients of a worker's bundles into frames, and owns what that needs:
// codecs, thresholds and residuals. Not thread-safe: it lives on one strand, apart from the
// Pipeline that hands out its tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compress/compressor.h"
#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"
#include "worker/core/gradient_view.h"
#include "worker/core/quality_meter.h"

namespace sluice::worker {

// A bundle whose gradients are all there. `chunks` is owned by the Pipeline that made the task, the
// gradients by whoever handed the tensors over.
struct EncodeTask {
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;
  bool last_of_step = false;
  bool nothing = false;  // To be sent of it: it is skipped, and residuals stay.
  absl::Span<const uint32_t> chunks;
  std::vector<GradientView> gradients;  // One per chunk.
  // What was published last for these chunks, one string each; empty: nothing since the last task.
  absl::Span<const std::string> published = {};
  // That holds in the step; null: none does.
  std::shared_ptr<const protocol::CompressionPlan> plan = {};
};

struct EncodedBundle {
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;
  // A gradient was not finite: no frames. That chunk's residual has not changed; those of the
  // others have taken their gradients in.
  bool skipped = false;
  uint32_t skipped_tensor = 0;      // The first such tensor.
  std::vector<std::string> frames;  // One per chunk.
  absl::Status failure{};           // Of the device: nothing can be encoded any more.
};

class BundleEncoder {
 public:
  // Uplink codecs by tensor, as `compression` says, until a task brings a plan. `quality_every`: as
  // QualityMeter has it. `device`: encodes gradients that lie there; it outlives the encoder.
  BundleEncoder(const protocol::TensorTable& table, const protocol::Layout& layout,
                const protocol::CompressionSpec& compression, uint32_t rank,
                uint64_t quality_every = 0, compress::EncodingDevice* device = nullptr);

  // Step 0 carries parameters: its frames are lossless and leave residuals and thresholds alone.
  EncodedBundle Encode(const EncodeTask& task);

  // What was published for `chunks`, one string each, and is in no task: once for each result,
  // between steps.
  void Observe(absl::Span<const uint32_t> chunks, absl::Span<const std::string> published);
  // Between steps, before Save: brings residuals from the device to where they are.
  // Errors: the device's.
  absl::Status FetchResiduals() { return compressor_.FetchResiduals(); }
  // Between steps. What was published and not observed is not in it.
  compress::SavedCompressor Save() const { return compressor_.Save(); }
  // From here on as the encoder that was saved, bit for bit. INVALID_ARGUMENT, and nothing but how
  // chunks are coded has changed: it was of another job, and how. With `plans` the codecs are those
  // that it was saved with: what a plan said of the step before, or of one before that if nothing
  // was encoded since.
  absl::Status Restore(const compress::SavedCompressor& saved, bool plans = false);

  // What coding loses of trained tensors, as it was measured last; of compensators with a memory on
  // both sides (ef21, diana) nothing is measured: their frames are no gradients.
  CodingQuality quality() const { return meter_.quality(); }
  const compress::Compressor& compressor() const { return compressor_; }
  const GradientReader& reader() const { return reader_; }

 private:
  void TakeUp(const protocol::CompressionPlan& plan);
  // `*refused`: the first position in the task whose gradient is not finite, where that is the
  // error.
  absl::Status EncodeFrames(const EncodeTask& task, size_t* refused,
                            std::vector<std::vector<std::byte>>* frames);
  absl::Status EncodeParameters(const EncodeTask& task, size_t* refused,
                                std::vector<std::vector<std::byte>>* frames);
  bool IsMeasured(uint32_t chunk, uint64_t step) const;
  // What EncodeFrames made.
  absl::Status MeasureQuality(const EncodeTask& task);

  const std::vector<compress::ChunkConfig> base_;  // As the job file has it.
  const uint32_t rank_;
  uint64_t coded_by_ = 0;  // The last plan that a task brought.
  compress::Compressor compressor_;
  const uint32_t trained_;  // Tensors.
  QualityMeter meter_;
  compress::EncodingDevice* const device_;
  GradientReader reader_;
  // Of the last task: memory that is used again.
  std::vector<compress::DeviceGradient> on_device_;
  std::vector<GradientView> views_;  // On the host what is encoded or measured there.
  std::vector<std::vector<std::byte>> frames_;
};

}  // namespace sluice::worker
