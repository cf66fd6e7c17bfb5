#include "worker/models/make_model.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/models/mlp.h"
#include "worker/models/simple_cnn.h"

namespace sluice {
namespace {

// Told before a constructor of LibTorch's is asked for a layer of nothing.
absl::Status CheckImages(const std::string& model, uint32_t min_side, const SampleShape& shape) {
  if (shape.is_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model, " takes images, and the data are text"));
  }
  if (shape.height < min_side || shape.width < min_side) {
    return absl::InvalidArgumentError(absl::StrCat("model ", model, " needs images of at least ",
                                                   min_side, " × ", min_side, " pixels, not ",
                                                   shape.height, " × ", shape.width, "; use mlp"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Model>> MakeModel(const ModelSpec& spec, const SampleShape& shape) {
  if (spec.name == "mlp") {
    if (absl::Status status = CheckImages(spec.name, 1, shape); !status.ok()) return status;
    return MakeMlp(spec.hidden.empty() ? std::vector<uint32_t>{128} : spec.hidden, shape);
  }
  if (spec.name == "simple_cnn") {
    absl::Status status = CheckImages(spec.name, kSimpleCnnMinSide, shape);
    if (!status.ok()) return status;
    return MakeSimpleCnn(shape);
  }
  if (spec.name == "custom") {
    return absl::InvalidArgumentError(
        "the job's model is custom: its workers are a program of your own that brings the model "
        "(see examples/own_loop.cc), not sluice-worker");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model \"", spec.name, "\" is not known: use mlp or simple_cnn"));
}

}  // namespace sluice
