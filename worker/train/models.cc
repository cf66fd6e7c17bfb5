#include "worker/train/models.h"

#include <torch/torch.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/train/labelled_images.h"

namespace sluice {
namespace {

namespace nn = torch::nn;

nn::Sequential MakeMlp(const std::vector<uint32_t>& hidden, ImageShape shape) {
  nn::Sequential model;
  model->push_back("flatten", nn::Flatten());
  int64_t in = int64_t{shape.height} * shape.width;
  for (size_t i = 0; i < hidden.size(); ++i) {
    const int64_t out = hidden[i];
    model->push_back(absl::StrCat("fc", i + 1), nn::Linear(in, out));
    model->push_back(absl::StrCat("relu", i + 1), nn::ReLU());
    in = out;
  }
  model->push_back(absl::StrCat("fc", hidden.size() + 1), nn::Linear(in, kImageClasses));
  return model;
}

// ReLU after pooling gives the same values as before it, on a quarter of the elements.
nn::Sequential MakeSimpleCnn(ImageShape shape) {
  const int64_t flat = int64_t{32} * (shape.height / 4) * (shape.width / 4);
  nn::Sequential model;
  model->push_back("conv1", nn::Conv2d(nn::Conv2dOptions(1, 16, 5).padding(2)));
  model->push_back("pool1", nn::MaxPool2d(2));
  model->push_back("relu1", nn::ReLU());
  model->push_back("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 5).padding(2)));
  model->push_back("pool2", nn::MaxPool2d(2));
  model->push_back("relu2", nn::ReLU());
  model->push_back("flatten", nn::Flatten());
  model->push_back("fc1", nn::Linear(flat, 128));
  model->push_back("relu3", nn::ReLU());
  model->push_back("fc2", nn::Linear(128, kImageClasses));
  return model;
}

}  // namespace

absl::StatusOr<torch::nn::Sequential> MakeModel(const ModelSpec& spec, ImageShape shape) {
  if (spec.name == "mlp") {
    return MakeMlp(spec.hidden.empty() ? std::vector<uint32_t>{128} : spec.hidden, shape);
  }
  if (spec.name == "simple_cnn") {
    if (shape.height < 4 || shape.width < 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("simple_cnn needs images of at least 4 × 4 pixels, not ", shape.height,
                       " × ", shape.width, "; use mlp"));
    }
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
