// SPDX-License-Identifier: Apache-2.0
#include "tests/convergence/exchange.h"

#include "base/check.h"
#include "compress/frame.h"

namespace sluice {
namespace {

constexpr size_t kSmallTensor = 1024;
constexpr uint64_t kSeed = 20261121;

std::vector<compress::ChunkConfig> Chunks(absl::Span<const TensorShape> tensors,
                                          const std::string& text, Exchange::Small small) {
  const compress::CodecSpec spec = *compress::ParseCodecSpec(text);
  const compress::CodecSpec dense = *compress::ParseCodecSpec("fp16");
  std::vector<compress::ChunkConfig> chunks;
  for (const TensorShape& tensor : tensors) {
    const bool coded = tensor.count >= kSmallTensor || small == Exchange::Small::kAsOthers;
    const auto id = static_cast<uint32_t>(chunks.size());
    // Lossless codecs apply to all tensors, because lossless runs are the baseline.
    chunks.push_back({tensor.count, coded || spec.codec == compress::CodecId::kNone ? spec : dense,
                      id, id, tensor.rows});
  }
  return chunks;
}

void CheckOk(const absl::Status& status) { Check(status.ok(), status.ToString()); }

}  // namespace

Exchange::Exchange(absl::Span<const TensorShape> tensors, const std::string& uplink,
                   const std::string& downlink, uint32_t workers, Small small)
    : uplink_(Chunks(tensors, uplink, small)),
      downlink_(Chunks(tensors, downlink, small)),
      shard_(std::make_unique<compress::Compressor>(
          downlink_, compress::Compressor::Options{kSeed, compress::Compressor::kShardSender})),
      frames_(workers) {
  for (uint32_t rank = 0; rank < workers; ++rank) {
    workers_.emplace_back(uplink_, compress::Compressor::Options{kSeed, rank});
  }
  for (const compress::ChunkConfig& chunk : uplink_)
    aggregators_.push_back(compress::MakeAggregator(chunk, workers));
}

void Exchange::Mean(absl::Span<const std::vector<float>> gradients, std::vector<float>* mean) {
  size_t begin = 0;
  for (size_t chunk = 0; chunk < uplink_.size(); ++chunk) {
    const size_t count = uplink_[chunk].count;
    MeanOfChunk(chunk, begin, gradients, absl::MakeSpan(*mean).subspan(begin, count));
    begin += count;
  }
  for (compress::Compressor& worker : workers_) worker.EndStep(step_);
  shard_->EndStep(step_);
  ++step_;
}

void Exchange::MeanOfChunk(size_t chunk, size_t begin,
                           absl::Span<const std::vector<float>> gradients, absl::Span<float> mean) {
  compress::Aggregator& aggregator = *aggregators_[chunk];
  std::vector<compress::SenderFrame> received;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const absl::Span<const float> gradient =
        absl::MakeConstSpan(gradients[rank]).subspan(begin, mean.size());
    frames_[rank].clear();
    CheckOk(workers_[rank].Encode(chunk, step_, gradient, &frames_[rank]));
    CheckOk(aggregator.Validate(rank, frames_[rank]));
    bytes_up_ += frames_[rank].size() - compress::kFrameHeaderSize;
    received.push_back({rank, frames_[rank]});
  }
  std::vector<float> sum(mean.size());
  aggregator.Add(received, absl::MakeSpan(sum));
  aggregator.Close(static_cast<uint32_t>(received.size()), absl::MakeSpan(sum));
  published_.clear();
  CheckOk(shard_->Encode(chunk, step_, sum, &published_));
  bytes_down_ += published_.size() - compress::kFrameHeaderSize;
  aggregator.AppendShared(&published_);
  std::fill(mean.begin(), mean.end(), 0.0f);
  CheckOk(compress::DecodeAddFrames(published_, mean));
  for (compress::Compressor& worker : workers_) {
    if (worker.observes(chunk)) worker.Observe(chunk, published_);
  }
}

}  // namespace sluice
