// SPDX-License-Identifier: Apache-2.0
// ImageSource: numbered 8-bit images of equal size, with their classes. It keeps the images in
// memory or decodes them on demand.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/training_spec.h"
#include "worker/data/source/augmentation.h"
#include "worker/data/source/labelled_images.h"

namespace sluice::worker {

// Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  virtual uint32_t size() const = 0;
  virtual PlaneShape shape() const = 0;
  virtual uint32_t classes() const = 0;
  // Names of the classes. Empty if they have no names.
  virtual const std::vector<std::string>& class_names() const = 0;
  // Writes the sample's shape().bytes() bytes, with the source's augmentation, and returns its
  // class. Errors name the file.
  virtual absl::StatusOr<uint32_t> Read(uint32_t sample, EpochKey epoch,
                                        absl::Span<uint8_t> pixels) const = 0;
};

// Images with classes and the normalization of their pixels.
struct TrainingImages {
  std::unique_ptr<ImageSource> source;
  Normalization normalization;
};

// Opens the training images of `spec`: at most data.limit, augmented, with the normalization from
// the job or from the data set. Errors name the file and the problem.
absl::StatusOr<TrainingImages> OpenTrainingImages(const job::DataSpec& spec);
// Opens at most data.test_limit test images, without augmentation. Also fails with INVALID_ARGUMENT
// if they do not match the data set of `training`.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenTestImages(const job::DataSpec& spec,
                                                            const ImageSource& training);

}  // namespace sluice::worker
