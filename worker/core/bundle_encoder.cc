// SPDX-License-Identifier: Apache-2.0
#include "worker/core/bundle_encoder.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/feedback/difference.h"
#include "compress/feedback/residual_merge.h"
#include "compress/frame.h"
#include "protocol/exchange.h"

namespace sluice::worker {
BundleEncoder::BundleEncoder(const protocol::TensorTable& table, const protocol::Layout& layout,
                             const protocol::CompressionSpec& compression, uint32_t rank,
                             const BundleEncoderOptions& options)
    : base_(protocol::ChunkConfigs(compression, table, layout, protocol::Direction::kUplink)),
      rank_(rank),
      compressor_(base_, {.seed = compression.seed, .sender = rank, .device = options.device}),
      trained_(protocol::TrainedTensors(table)),
      meter_(base_.size(), options.quality_interval),
      device_(options.device),
      stages_(options.stages),
      parallel_(std::make_unique<Parallel>(
          options.threads,
          [stages = options.stages](absl::FunctionRef<void()> work) {
            const protocol::StageSpan encoding(stages, protocol::Stage::kEncode);
            work();
          })),
      readers_(options.threads) {}

void BundleEncoder::Adopt(const protocol::CompressionPlan& plan) {
  if (plan.id == coded_by_) return;
  const absl::Status recoded =
      compressor_.Recode(protocol::SpecsUnder(&plan, protocol::Direction::kUplink, rank_, base_));
  Check(recoded.ok(), recoded.message());
  coded_by_ = plan.id;
}

absl::Status BundleEncoder::Restore(const compress::SavedCompressor& saved, bool plans) {
  if (plans && saved.chunks.size() == base_.size()) {
    std::vector<compress::CodecSpec> specs;
    for (size_t i = 0; i < base_.size(); ++i) {
      const compress::CodecSpec& spec = saved.chunks[i].config.spec;
      specs.push_back(
          protocol::MayChange(spec) && protocol::MayChange(base_[i].spec) ? spec : base_[i].spec);
      specs.back().compensator = base_[i].spec.compensator;
    }
    absl::Status recoded = compressor_.Recode(specs);
    if (!recoded.ok()) return recoded;
    coded_by_ = 0;
  }
  return compressor_.Restore(saved);
}

absl::Status BundleEncoder::RestoreForNewShards(compress::SavedCompressor saved) {
  return compressor_.Restore(compress::ForNewReceivers(std::move(saved), Save()));
}

EncodedBundle BundleEncoder::Encode(const EncodeTask& task) {
  const protocol::StageSpan encoding(stages_, protocol::Stage::kEncode);
  EncodedBundle encoded;
  encoded.step = task.step;
  encoded.shard = task.shard;
  encoded.bundle = task.bundle;
  pending_.clear();
  Observe(task.chunks, task.published);
  if (task.plan != nullptr) Adopt(*task.plan);
  size_t refused = 0;
  absl::Status status = Return(task.returned);
  if (!status.ok()) {
    encoded.failure = std::move(status);
    return encoded;
  }
  if (task.nothing) {
    encoded.skipped = true;
  } else {
    status = EncodeFrames(task, &refused, &frames_);
    if (status.ok()) status = MeasureQuality(task);
  }
  if (absl::IsInvalidArgument(status)) {
    // The Pipeline has checked sizes and ids, so only a non-finite value can prevent the encoding.
    Check(refused < task.chunks.size(), "a bundle is only refused for a value that is not finite");
    encoded.skipped = true;
    encoded.skipped_tensor = base_[task.chunks[refused]].tensor;
  } else {
    encoded.failure.Update(status);
  }
  if (!encoded.skipped && encoded.failure.ok()) {
    for (const std::vector<std::byte>& frame : frames_) {
      encoded.frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
    }
  }
  if (task.last_of_step && task.step > 0) compressor_.EndStep(task.step);
  return encoded;
}

bool BundleEncoder::IsMeasured(uint32_t chunk, uint64_t step) const {
  return meter_.IsDue(chunk, step) && base_[chunk].tensor < trained_ &&
         !compress::HasMemory(base_[chunk].spec.compensator.id);
}

absl::Status BundleEncoder::MeasureQuality(const EncodeTask& task) {
  if (task.step == 0) return absl::OkStatus();
  for (size_t i = 0; i < task.chunks.size(); ++i) {
    const uint32_t chunk = task.chunks[i];
    if (!IsMeasured(chunk, task.step)) continue;
    absl::Status fetched = compressor_.FetchResidual(chunk);
    if (!fetched.ok()) return fetched;
    meter_.Measure(chunk, readers_[0].Read(views_[i]), frames_[i], compressor_.residual(chunk));
  }
  return absl::OkStatus();
}

void BundleEncoder::Observe(absl::Span<const uint32_t> chunks,
                            absl::Span<const std::string> published) {
  for (size_t i = 0; i < published.size(); ++i) {
    compressor_.Observe(chunks[i], protocol::FrameBytes(published[i]));
  }
}

absl::Status BundleEncoder::Return(absl::Span<const ReturnedWork> returned) {
  for (const ReturnedWork& work : returned) {
    for (size_t i = 0; i < work.chunks.size(); ++i) {
      const absl::Span<const std::byte> frame = protocol::FrameBytes(work.contribution->frames[i]);
      absl::Status status = compressor_.ReturnFrame(work.chunks[i], frame, work.share);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status BundleEncoder::Settle(LateParts late) {
  pending_ = std::move(late.pending);
  absl::Status status = Return(late.returned);
  return status.ok() ? compressor_.FetchResiduals() : status;
}

compress::SavedCompressor BundleEncoder::Save() const {
  compress::SavedCompressor saved = compressor_.Save();
  for (const ReturnedWork& work : pending_) {
    for (size_t i = 0; i < work.chunks.size(); ++i) {
      compress::AddToResidual(protocol::FrameBytes(work.contribution->frames[i]),
                              &saved.chunks[work.chunks[i]]);
    }
  }
  return saved;
}

absl::Status BundleEncoder::EncodeFrames(const EncodeTask& task, size_t* refused,
                                         std::vector<std::vector<std::byte>>* frames) {
  if (task.step == 0) return EncodeParameters(task, refused, frames);
  on_device_.clear();
  views_ = task.gradients;
  std::vector<GradientView*> to_host;
  for (size_t i = 0; i < views_.size(); ++i) {
    on_device_.push_back(views_[i].on_device());
    if (!views_[i].on_gpu) continue;
    const uint32_t chunk = task.chunks[i];
    const bool there = compressor_.EncodesOnDevice(chunk) && !IsMeasured(chunk, task.step);
    if (!there) to_host.push_back(&views_[i]);
  }
  absl::Status here = BringToHost(to_host, device_);
  if (!here.ok()) return here;
  // The encoder reads each chunk only when it encodes it.
  absl::Status status = compressor_.EncodeInLanes(
      parallel_.get(), task.chunks, task.step,
      [&](size_t i, size_t lane) { return readers_[lane].Read(views_[i]); }, frames, on_device_);
  *refused = compressor_.refused();
  return status;
}

absl::Status BundleEncoder::EncodeParameters(const EncodeTask& task, size_t* refused,
                                             std::vector<std::vector<std::byte>>* frames) {
  const std::unique_ptr<compress::Codec> lossless =
      compress::MakeCodec({.codec = compress::CodecId::kNone});
  frames->resize(task.chunks.size());
  views_ = task.gradients;
  std::vector<GradientView*> all;
  for (GradientView& view : views_) all.push_back(&view);
  absl::Status here = BringToHost(all, device_);
  if (!here.ok()) return here;
  for (*refused = 0; *refused < task.chunks.size(); ++*refused) {
    std::vector<std::byte>& frame = (*frames)[*refused];
    frame.clear();
    const absl::Span<const float> values = readers_[0].Read(views_[*refused]);
    const absl::Status status =
        compress::EncodeFrame(*lossless, {.gradient = values, .residual = {}}, &frame);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace sluice::worker
