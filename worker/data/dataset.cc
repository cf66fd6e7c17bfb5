// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <torch/torch.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/source/image_source.h"
#include "worker/data/source/synthetic_text.h"
#include "worker/data/source/text_tokens.h"
#include "worker/data/source/text_windows.h"

namespace sluice::worker {
namespace {

constexpr size_t kSyntheticCharacters = 400'000;

class ImageDataset : public Dataset {
 public:
  ImageDataset(std::unique_ptr<ImageSource> source, const Normalization& normalization)
      : source_(std::move(source)) {
    for (uint32_t channel = 0; channel < source_->shape().channels; ++channel) {
      std::array<float, 256>& table = normalized_.emplace_back();
      for (size_t value = 0; value < table.size(); ++value) {
        table[value] = (static_cast<float>(value) / 255.0f - normalization.mean[channel]) /
                       normalization.deviation[channel];
      }
    }
  }

  uint32_t size() const override { return source_->size(); }
  SampleShape shape() const override {
    const PlaneShape planes = source_->shape();
    return {.channels = planes.channels,
            .height = planes.height,
            .width = planes.width,
            .classes = source_->classes()};
  }
  absl::StatusOr<Batch> MakeBatch(absl::Span<const uint32_t> samples,
                                  EpochKey epoch) const override {
    const PlaneShape shape = source_->shape();
    const auto n = static_cast<int64_t>(samples.size());
    Batch batch;
    batch.inputs = at::empty({n, shape.channels, shape.height, shape.width}, at::kFloat);
    batch.targets = at::empty({n}, at::kLong);
    float* to = batch.inputs.mutable_data_ptr<float>();
    int64_t* target = batch.targets.mutable_data_ptr<int64_t>();
    std::vector<uint8_t> pixels(shape.bytes());
    for (const uint32_t sample : samples) {
      const absl::StatusOr<uint32_t> label = source_->Read(sample, epoch, absl::MakeSpan(pixels));
      if (!label.ok()) return label.status();
      *target++ = *label;
      const uint8_t* from = pixels.data();
      for (const std::array<float, 256>& table : normalized_) {
        for (size_t i = 0; i < size_t{shape.height} * shape.width; ++i) *to++ = table[*from++];
      }
    }
    return batch;
  }

 private:
  const std::unique_ptr<ImageSource> source_;
  std::vector<std::array<float, 256>> normalized_;  // By channel and byte.
};

class TextDataset : public Dataset {
 public:
  explicit TextDataset(TextWindows windows) : windows_(std::move(windows)) {}

  uint32_t size() const override { return windows_.size(); }
  SampleShape shape() const override {
    return {.context = windows_.context(), .classes = windows_.vocabulary()};
  }
  absl::StatusOr<Batch> MakeBatch(absl::Span<const uint32_t> samples,
                                  EpochKey epoch) const override {
    const size_t context = windows_.context();
    const auto n = static_cast<int64_t>(samples.size());
    Batch batch;
    batch.inputs = at::empty({n, static_cast<int64_t>(context)}, at::kLong);
    batch.targets = at::empty_like(batch.inputs);
    int64_t* input = batch.inputs.mutable_data_ptr<int64_t>();
    int64_t* target = batch.targets.mutable_data_ptr<int64_t>();
    for (const uint32_t sample : samples) {
      windows_.Read(sample, epoch, {input, context}, {target, context});
      input += context;
      target += context;
    }
    return batch;
  }

 private:
  const TextWindows windows_;
};

absl::StatusOr<Datasets> OpenImages(const job::DataSpec& spec, bool with_test) {
  absl::StatusOr<TrainingImages> training = OpenTrainingImages(spec);
  if (!training.ok()) return training.status();
  Datasets data;
  if (with_test) {
    absl::StatusOr<std::unique_ptr<ImageSource>> test = OpenTestImages(spec, *training->source);
    if (!test.ok()) return test.status();
    data.test = std::make_shared<ImageDataset>(*std::move(test), training->normalization);
  }
  data.training =
      std::make_shared<ImageDataset>(std::move(training->source), training->normalization);
  return data;
}

absl::StatusOr<TextTokens> OpenTokens(const job::DataSpec& spec) {
  const TextLevel level = spec.level == "byte" ? TextLevel::kByte : TextLevel::kChar;
  if (spec.format == job::DataFormat::kText) return ReadTextFile(spec.path, level);
  return TokenizeText(MakeSyntheticText(kSyntheticCharacters), level, "the synthetic text");
}

absl::StatusOr<Datasets> OpenText(const job::DataSpec& spec, bool with_test) {
  absl::StatusOr<TextTokens> tokens = OpenTokens(spec);
  if (!tokens.ok()) return tokens.status();
  const auto text = std::make_shared<const TextTokens>(*std::move(tokens));
  const std::string name = spec.format == job::DataFormat::kText ? spec.path : "the synthetic text";
  const size_t end = text->tokens.size();
  const size_t validation = ValidationBegin(end, spec.validation_fraction);
  absl::StatusOr<TextWindows> training = TextWindows::Create(
      text, 0, validation, {.context = spec.context, .limit = spec.limit, .moving = true},
      absl::StrCat(name, ": the training part"));
  if (!training.ok()) return training.status();
  Datasets data;
  data.training = std::make_shared<TextDataset>(*std::move(training));
  if (!with_test) return data;
  absl::StatusOr<TextWindows> test = TextWindows::Create(
      text, validation, end, {.context = spec.context, .limit = spec.test_limit},
      absl::StrCat(name, ": the validation part (data.validation_fraction)"));
  if (!test.ok()) return test.status();
  data.test = std::make_shared<TextDataset>(*std::move(test));
  return data;
}

}  // namespace

absl::StatusOr<Datasets> OpenDatasets(const job::DataSpec& spec, bool with_test) {
  const bool text = job::IsText(spec.format);
  with_test = with_test && spec.has_test_data();
  return text ? OpenText(spec, with_test) : OpenImages(spec, with_test);
}

}  // namespace sluice::worker
