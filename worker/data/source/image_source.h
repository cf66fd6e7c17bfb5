// ImageSource: equally large images of bytes with their classes, by number; in memory, or decoded
// when they are asked for.
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
  // Names of classes, where they have some; else empty.
  virtual const std::vector<std::string>& class_names() const = 0;
  // Writes the sample's shape().bytes() bytes, augmented as the source was told to, and gives its
  // class. Errors name the file.
  virtual absl::StatusOr<uint32_t> Read(uint32_t sample, EpochKey epoch,
                                        absl::Span<uint8_t> pixels) const = 0;
};

// Images of classes and how their pixels are normalized.
struct TrainingImages {
  std::unique_ptr<ImageSource> source;
  Normalization normalization;
};

// The images that `spec` names: at most data.limit of those to train on, augmented, and normalized
// as it says or as they need. Errors name the file and what is wrong with it.
absl::StatusOr<TrainingImages> OpenTrainingImages(const job::DataSpec& spec);
// At most data.test_limit of those to test on, as they are. INVALID_ARGUMENT too: they are not of
// one data set with `training`.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenTestImages(const job::DataSpec& spec,
                                                            const ImageSource& training);

}  // namespace sluice::worker
