#include "worker/core/bundle_encoder.h"

#include <memory>

#include "base/check.h"
#include "compress/accumulator.h"
#include "compress/codec_table.h"
#include "compress/difference.h"
#include "compress/frame.h"
#include "job/exchange.h"

namespace sluice {
BundleEncoder::BundleEncoder(const TensorTable& table, const Layout& layout,
                             const CompressionSpec& compression, uint32_t rank,
                             uint64_t quality_every)
    : base_(ChunkConfigs(compression, table, layout, Direction::kUplink)),
      rank_(rank),
      compressor_(base_, {.seed = compression.seed, .sender = rank}),
      trained_(TrainedTensors(table)),
      meter_(base_.size(), quality_every) {}

void BundleEncoder::TakeUp(const CompressionPlan& plan) {
  if (plan.id == coded_by_) return;
  const absl::Status recoded =
      compressor_.Recode(SpecsUnder(&plan, Direction::kUplink, rank_, base_));
  Check(recoded.ok(), recoded.message());
  coded_by_ = plan.id;
}

absl::Status BundleEncoder::Restore(const SavedCompressor& saved, bool plans) {
  if (plans && saved.chunks.size() == base_.size()) {
    std::vector<CodecSpec> specs;
    for (size_t i = 0; i < base_.size(); ++i) {
      const CodecSpec& spec = saved.chunks[i].config.spec;
      specs.push_back(MayChange(spec) && MayChange(base_[i].spec) ? spec : base_[i].spec);
      specs.back().compensator = base_[i].spec.compensator;
    }
    absl::Status recoded = compressor_.Recode(specs);
    if (!recoded.ok()) return recoded;
    coded_by_ = 0;
  }
  return compressor_.Restore(saved);
}

EncodedBundle BundleEncoder::Encode(const EncodeTask& task) {
  EncodedBundle encoded;
  encoded.step = task.step;
  encoded.shard = task.shard;
  encoded.bundle = task.bundle;
  Observe(task.chunks, task.published);
  if (task.plan != nullptr) TakeUp(*task.plan);
  if (task.nothing) {
    encoded.skipped = true;
  } else if (EncodeFrames(task, &frames_).ok()) {
    MeasureQuality(task);
    for (const std::vector<std::byte>& frame : frames_) {
      encoded.frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
    }
  } else {
    // Sizes and ids are the Pipeline's own; only the values can have been refused.
    encoded.skipped = true;
    size_t bad = 0;
    while (bad < task.chunks.size() && IsFine(task, bad)) ++bad;
    Check(bad < task.chunks.size(), "a bundle is only refused for a value that is not finite");
    encoded.skipped_tensor = base_[task.chunks[bad]].tensor;
  }
  if (task.last_of_step && task.step > 0) compressor_.EndStep(task.step);
  return encoded;
}

void BundleEncoder::MeasureQuality(const EncodeTask& task) {
  if (task.step == 0) return;
  for (size_t i = 0; i < task.chunks.size(); ++i) {
    const uint32_t chunk = task.chunks[i];
    if (!meter_.IsDue(chunk, task.step) || base_[chunk].tensor >= trained_) continue;
    if (HasMemory(base_[chunk].spec.compensator.id)) continue;
    meter_.Measure(chunk, reader_.Read(task.gradients[i]), frames_[i], compressor_.residual(chunk));
  }
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
