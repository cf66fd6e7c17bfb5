// Dataset: a job's samples by number, as the tensors that a model takes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/training_spec.h"
#include "worker/data/source/augmentation.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

struct Batch {
  at::Tensor inputs;   // Images: float [n, channels, height, width]. Tokens: int64 [n, context].
  at::Tensor targets;  // int64: classes [n], or the tokens that follow [n, context].
};

// Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual uint32_t size() const = 0;
  virtual SampleShape shape() const = 0;
  // Samples by their numbers, all below size(). What is random of training samples is a function of
  // (seed, epoch, sample number). Errors name the file. Throws what LibTorch throws.
  virtual absl::StatusOr<Batch> MakeBatch(absl::Span<const uint32_t> samples,
                                          EpochKey epoch) const = 0;
};

struct Datasets {
  std::shared_ptr<const Dataset> training;
  std::shared_ptr<const Dataset> test;  // None: not asked for, or the job has none.
};

// Opens what `spec` names: reads it, or, of image_folder, lists it and reads the files' headers.
// Errors name the file and what is wrong with it.
absl::StatusOr<Datasets> OpenDatasets(const job::DataSpec& spec, bool with_test);

}  // namespace sluice::worker
