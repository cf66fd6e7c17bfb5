#include "job/training_spec.h"

namespace sluice::job {

bool DataSpec::has_test_data() const {
  if (format == "idx") return !test_images.empty();
  if (format == "image_folder") return !test_folder.empty();
  if (format == "text" || format == "synthetic_text") return validation_fraction > 0;
  return format != "custom";
}

}  // namespace sluice::job
