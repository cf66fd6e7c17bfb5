#include "worker/core/bundle_encoder.h"

#include <memory>

#include "base/check.h"
#include "compress/accumulator.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "job/exchange.h"

namespace sluice {
namespace {

std::vector<uint32_t> TensorsOfChunks(const Layout& layout) {
  std::vector<uint32_t> tensors;
  tensors.reserve(layout.chunks.size());
  for (const Chunk& chunk : layout.chunks) tensors.push_back(chunk.tensor);
  return tensors;
}

}  // namespace

BundleEncoder::BundleEncoder(const TensorTable& table, const Layout& layout,
                             const CompressionSpec& compression, uint32_t rank)
    : tensor_of_chunk_(TensorsOfChunks(layout)),
      compressor_(ChunkConfigs(compression, table, layout, Direction::kUplink),
                  {.seed = compression.seed, .sender = rank}) {}

EncodedBundle BundleEncoder::Encode(const EncodeTask& task) {
  EncodedBundle encoded;
  encoded.step = task.step;
  encoded.shard = task.shard;
  encoded.bundle = task.bundle;
  Observe(task.chunks, task.published);
  if (EncodeFrames(task, &frames_).ok()) {
    for (const std::vector<std::byte>& frame : frames_) {
      encoded.frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
    }
  } else {
    // Sizes and ids are the Pipeline's own; only the values can have been refused.
    encoded.skipped = true;
    size_t bad = 0;
    while (bad < task.chunks.size() && IsFine(task, bad)) ++bad;
    Check(bad < task.chunks.size(), "a bundle is only refused for a value that is not finite");
    encoded.skipped_tensor = tensor_of_chunk_[task.chunks[bad]];
  }
  if (task.last_of_step && task.step > 0) compressor_.EndStep(task.step);
  return encoded;
}

void BundleEncoder::Observe(absl::Span<const uint32_t> chunks,
                            absl::Span<const std::string> published) {
  for (size_t i = 0; i < published.size(); ++i) {
    compressor_.Observe(chunks[i], FrameBytes(published[i]));
  }
}

bool BundleEncoder::IsFine(const EncodeTask& task, size_t position) {
  const absl::Span<const float> gradient = reader_.Read(task.gradients[position]);
  if (task.step == 0) return CheckAccumulator(gradient, {}).ok();
  return compressor_.Check(task.chunks[position], gradient).ok();
}

absl::Status BundleEncoder::EncodeFrames(const EncodeTask& task,
                                         std::vector<std::vector<std::byte>>* frames) {
  // Chunk by chunk: each is read when its turn comes.
  if (task.step > 0) {
    return compressor_.EncodeEach(
        task.chunks, task.step, [&](size_t i) { return reader_.Read(task.gradients[i]); }, frames);
  }
  const std::unique_ptr<Codec> lossless = MakeCodec({.codec = CodecId::kNone});
  frames->resize(task.chunks.size());
  for (size_t i = 0; i < task.chunks.size(); ++i) {
    (*frames)[i].clear();
    const absl::Span<const float> values = reader_.Read(task.gradients[i]);
    const absl::Status status =
        EncodeFrame(*lossless, {.gradient = values, .residual = {}}, &(*frames)[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace sluice
