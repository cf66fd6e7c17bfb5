// SPDX-License-Identifier: Apache-2.0
// Exchange: computes the mean of several workers' gradients as the workers receive it in a job. The
// class uses compressors, receivers and frames, but no network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"

namespace sluice {

struct TensorShape {
  size_t count = 0;
  uint32_t rows = 0;  // 0 for a tensor that is not a matrix.
};

class Exchange {
 public:
  // Each tensor has a single chunk. Tensors with fewer than 1,024 elements are sent as fp16, as in
  // a job, unless `small` is kAsOthers.
  enum class Small { kFp16, kAsOthers };
  Exchange(absl::Span<const TensorShape> tensors, const std::string& uplink,
           const std::string& downlink, uint32_t workers, Small small = Small::kFp16);

  // Computes the mean. gradients[worker] contains all tensors, one after another. `*mean` has the
  // same size and receives the values that the workers decode.
  void Mean(absl::Span<const std::vector<float>> gradients, std::vector<float>* mean);

  // Returns the bytes of all frames so far, without headers.
  uint64_t bytes_up() const { return bytes_up_; }
  uint64_t bytes_down() const { return bytes_down_; }

 private:
  void MeanOfChunk(size_t chunk, size_t begin, absl::Span<const std::vector<float>> gradients,
                   absl::Span<float> mean);

  std::vector<compress::ChunkConfig> uplink_, downlink_;
  std::vector<compress::Compressor> workers_;
  std::unique_ptr<compress::Compressor> shard_;
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;
  std::vector<std::vector<std::byte>> frames_;
  std::vector<std::byte> published_;
  uint64_t step_ = 0;
  uint64_t bytes_up_ = 0;
  uint64_t bytes_down_ = 0;
};

}  // namespace sluice
