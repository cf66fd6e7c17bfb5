// SPDX-License-Identifier: Apache-2.0
#include "worker/data/batch_stream.h"

#include <functional>
#include <memory>
#include <utility>

#include "worker/torch/torch_status.h"

namespace sluice::worker {
namespace {

// Makes the batches of `dealt` in order and stops after the first error.
std::function<std::unique_ptr<absl::StatusOr<Batch>>()> BatchesOf(
    const Dataset* dataset, const ShardSampler* sampler, const std::vector<uint32_t>* dealt,
    const BatchStreamOptions& options) {
  return [=, step = options.first_step,
          pass = uint32_t{0}]() mutable -> std::unique_ptr<absl::StatusOr<Batch>> {
    for (; step < options.end_step; ++step, pass = 0) {
      if (pass == options.passes_per_step) continue;
      const absl::Span<const uint32_t> samples = sampler->Batch(*dealt, step, pass);
      if (samples.empty()) continue;  // The step's other passes are empty too.
      ++pass;
      auto batch = std::make_unique<absl::StatusOr<Batch>>(TorchStatus(
          "making a batch", [&] { return dataset->MakeBatch(samples, options.epoch); }));
      if (!batch->ok()) step = options.end_step;
      return batch;
    }
    return nullptr;
  };
}

}  // namespace

BatchStream::BatchStream(const Dataset* dataset, const ShardSampler* sampler,
                         const BatchStreamOptions& options)
    : sampler_(sampler),
      dealt_(sampler->Deal(options.epoch.epoch, options.offset)),
      prefetcher_(options.prefetch, BatchesOf(dataset, sampler, &dealt_, options)) {}

size_t BatchStream::SamplesOf(uint64_t step, uint32_t pass) const {
  return sampler_->Batch(dealt_, step, pass).size();
}

absl::StatusOr<Batch> BatchStream::Next() {
  std::unique_ptr<absl::StatusOr<Batch>> next = prefetcher_.Next();
  if (next == nullptr) return absl::OutOfRangeError("the epoch has no more batches");
  return *std::move(next);
}

}  // namespace sluice::worker
