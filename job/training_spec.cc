// SPDX-License-Identifier: Apache-2.0
#include "job/training_spec.h"

namespace sluice::job {

bool DataSpec::has_test_data() const {
  if (format == DataFormat::kIdx) return !test_images.empty();
  if (format == DataFormat::kImageFolder) return !test_folder.empty();
  if (IsText(format)) return validation_fraction > 0;
  return format != DataFormat::kCustom;
}

}  // namespace sluice::job
