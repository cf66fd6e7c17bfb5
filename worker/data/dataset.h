// SPDX-License-Identifier: Apache-2.0
// Dataset: a job's samples by number, as input tensors of a model.
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
  at::Tensor targets;  // int64: classes [n], or the following tokens [n, context].
};

// Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual uint32_t size() const = 0;
  virtual SampleShape shape() const = 0;
  // Makes a batch of samples by their numbers, all below size(). The random changes to training
  // samples depend only on (seed, epoch, sample number). Errors name the file. Throws LibTorch's
  // exceptions.
  virtual absl::StatusOr<Batch> MakeBatch(absl::Span<const uint32_t> samples,
                                          EpochKey epoch) const = 0;
};

struct Datasets {
  std::shared_ptr<const Dataset> training;
  std::shared_ptr<const Dataset> test;  // Null if it was not requested or the job has no tests.
};

// Opens the data sets of `spec`: reads them, or for image_folder lists the files and reads their
// headers. Errors name the file and the problem.
absl::StatusOr<Datasets> OpenDatasets(const job::DataSpec& spec, bool with_test);

}  // namespace sluice::worker
