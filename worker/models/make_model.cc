// SPDX-License-Identifier: Apache-2.0
#include "worker/models/make_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/models/char_gpt.h"
#include "worker/models/mlp.h"
#include "worker/models/resnet.h"
#include "worker/models/simple_cnn.h"
#include "worker/models/vgg.h"

namespace sluice::worker {
namespace {

using MadeModel = absl::StatusOr<std::shared_ptr<Model>>;

constexpr uint32_t kImageNetStemMinSide = 64;  // Used if the job does not select a stem.

// Rejects text, and images that are so small that a layer would have size 0. `instead` names the
// alternative for smaller images.
absl::Status CheckImages(const std::string& model, uint32_t min_side, absl::string_view instead,
                         const SampleShape& shape) {
  if (shape.is_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model, " takes images, but the data are text: use char_gpt"));
  }
  if (shape.height < min_side || shape.width < min_side) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model, " needs images of at least ", min_side, " × ", min_side,
                     " pixels, not ", shape.height, " × ", shape.width, ": use ", instead));
  }
  return absl::OkStatus();
}

MadeModel ResNetFor(const job::ModelSpec& spec, const SampleShape& shape) {
  const bool small_images = std::min(shape.height, shape.width) < kImageNetStemMinSide;
  const bool small_stem = spec.stem == "cifar" || (spec.stem == "auto" && small_images);
  ResNetOptions options = ResNet20();
  if (spec.name == "resnet18") options = ResNet18(small_stem);
  if (spec.name == "resnet50") options = ResNet50(small_stem);
  const absl::string_view instead = options.small_stem ? "mlp" : "stem: cifar";
  absl::Status status = CheckImages(spec.name, ResNetMinSide(options), instead, shape);
  if (!status.ok()) return status;
  return MakeResNet(options, shape);
}

MadeModel CharGptFor(const job::ModelSpec& spec, const SampleShape& shape) {
  if (!shape.is_tokens()) {
    return absl::InvalidArgumentError(
        "model char_gpt takes text, but the data are images: use resnet20, or another model for "
        "images");
  }
  if (spec.heads == 0 || spec.width % spec.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the width of char_gpt, ", spec.width, ", is not a multiple of its heads, ", spec.heads));
  }
  return MakeCharGpt(
      {.layers = spec.layers, .heads = spec.heads, .width = spec.width, .dropout = spec.dropout},
      shape);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Model>> MakeModel(const job::ModelSpec& spec,
                                                 const SampleShape& shape) {
  const std::string& name = spec.name;
  if (name == "mlp") {
    if (absl::Status status = CheckImages(name, 1, "others", shape); !status.ok()) return status;
    return MakeMlp(spec.hidden.empty() ? std::vector<uint32_t>{128} : spec.hidden, shape);
  }
  if (name == "simple_cnn") {
    absl::Status status = CheckImages(name, kSimpleCnnMinSide, "mlp", shape);
    if (!status.ok()) return status;
    return MakeSimpleCnn(shape);
  }
  if (name == "resnet20" || name == "resnet18" || name == "resnet50") return ResNetFor(spec, shape);
  if (name == "vgg16") {
    absl::Status status = CheckImages(name, kVgg16MinSide, "resnet20", shape);
    if (!status.ok()) return status;
    return MakeVgg16({.batch_norm = spec.batch_norm}, shape);
  }
  if (name == "char_gpt") return CharGptFor(spec, shape);
  if (name == "custom") {
    return absl::InvalidArgumentError(
        "the job's model is custom: use your own worker program, which provides the model (see "
        "examples/own_loop.cc), instead of sluice-worker");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model \"", name,
                   "\" is not known: use mlp, simple_cnn, resnet20, resnet18, resnet50, vgg16 or "
                   "char_gpt"));
}

}  // namespace sluice::worker
