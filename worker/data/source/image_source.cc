// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/image_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/data/source/cifar_files.h"
#include "worker/data/source/idx_file.h"
#include "worker/data/source/image_decoder.h"
#include "worker/data/source/image_folder.h"
#include "worker/data/source/resample.h"
#include "worker/data/source/synthetic_images.h"

namespace sluice::worker {
namespace {

// Statistics of ImageNet. Measuring another folder would require decoding all of its images first.
constexpr float kImageNetMean[] = {0.485f, 0.456f, 0.406f};
constexpr float kImageNetDeviation[] = {0.229f, 0.224f, 0.225f};

constexpr uint32_t kSyntheticMax = 1 << 20;  // Number of the first synthetic test image.

std::string Below(const std::string& folder, const std::string& name) {
  if (folder.empty() || (!name.empty() && name.front() == '/')) return name;
  return absl::StrCat(folder, folder.back() == '/' ? "" : "/", name);
}

class MemoryImages : public ImageSource {
 public:
  MemoryImages(LabelledImages images, const Augmentation& augmentation)
      : images_(std::move(images)), augmentation_(augmentation) {}

  uint32_t size() const override { return images_.count; }
  PlaneShape shape() const override { return images_.shape(); }
  uint32_t classes() const override { return images_.classes; }
  const std::vector<std::string>& class_names() const override { return no_names_; }
  const LabelledImages& images() const { return images_; }

  absl::StatusOr<uint32_t> Read(uint32_t sample, EpochKey epoch,
                                absl::Span<uint8_t> pixels) const override {
    const size_t bytes = images_.shape().bytes();
    const absl::Span<const uint8_t> stored(images_.pixels.data() + sample * bytes, bytes);
    if (augmentation_.crop_padding == 0 && !augmentation_.flip) {
      std::copy(stored.begin(), stored.end(), pixels.begin());
    } else {
      CropAndFlip(augmentation_, images_.shape(), stored, SampleRandom(epoch, sample), pixels);
    }
    return uint32_t{images_.labels[sample]};
  }

 private:
  const LabelledImages images_;
  const Augmentation augmentation_;
  const std::vector<std::string> no_names_;
};

// Holds file names and decodes an image on each read.
class FolderImages : public ImageSource {
 public:
  FolderImages(ImageFolder folder, uint32_t side, const Augmentation& augmentation)
      : folder_(std::move(folder)), side_(side), augmentation_(augmentation) {}

  uint32_t size() const override { return static_cast<uint32_t>(folder_.files.size()); }
  PlaneShape shape() const override { return {3, side_, side_}; }
  uint32_t classes() const override { return static_cast<uint32_t>(folder_.classes.size()); }
  const std::vector<std::string>& class_names() const override { return folder_.classes; }

  absl::StatusOr<uint32_t> Read(uint32_t sample, EpochKey epoch,
                                absl::Span<uint8_t> pixels) const override {
    const ImageFolder::File& file = folder_.files[sample];
    const absl::StatusOr<RgbImage> image = DecodeImageFile(folder_.PathOf(file));
    if (!image.ok()) return image.status();
    ResampleOptions options = MiddleOf(image->size, side_);
    CounterRandom random = SampleRandom(epoch, sample);
    if (augmentation_.random_resized_crop > 0) {
      options.from = RandomCrop(image->size.width, image->size.height,
                                augmentation_.random_resized_crop, &random);
      options.width = options.height = side_;
      options.window = {.left = 0, .top = 0, .width = side_, .height = side_};
    }
    options.flip = augmentation_.flip && random.Below(2) == 1;
    Resample(*image, options, pixels);
    return file.label;
  }

 private:
  const ImageFolder folder_;
  const uint32_t side_;
  const Augmentation augmentation_;
};

Augmentation AugmentationOf(const job::DataSpec& spec) {
  return {.crop_padding = spec.crop_padding,
          .flip = spec.flip,
          .random_resized_crop = spec.random_resized_crop};
}

absl::Status UnknownFormat(const job::DataSpec& spec) {
  if (spec.format == job::DataFormat::kCustom) {
    return absl::InvalidArgumentError(
        "the job's data is custom: use your own worker program, which provides the data (see "
        "examples/own_loop.cc), instead of sluice-worker");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("data format \"", NameOf(spec.format), "\" is not known"));
}

absl::StatusOr<LabelledImages> Synthetic(const job::DataSpec& spec, bool test) {
  const bool color = spec.format == job::DataFormat::kSyntheticCifar;
  const uint32_t wanted = test ? spec.test_limit : spec.limit;
  if (wanted > kSyntheticMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kSyntheticMax, " synthetic images can be made, not ", wanted));
  }
  const uint32_t usual = (color ? 10240u : 4096u) / (test ? 4 : 1);
  const uint32_t first = test ? kSyntheticMax : 0;
  const uint32_t count = wanted > 0 ? wanted : usual;
  return color ? MakeSyntheticColorImages(first, count) : MakeSyntheticImages(first, count);
}

absl::StatusOr<LabelledImages> Cifar(const job::DataSpec& spec, bool test) {
  std::vector<std::string> names;
  if (spec.format == job::DataFormat::kCifar100) {
    names = {test ? "test.bin" : "train.bin"};
  } else if (test) {
    names = {"test_batch.bin"};
  } else {
    names = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
             "data_batch_5.bin"};
  }
  for (std::string& name : names) name = Below(spec.path, name);
  const CifarLabels labels = spec.format == job::DataFormat::kCifar10 ? CifarLabels::kTen
                             : spec.labels == "coarse"                ? CifarLabels::kHundredCoarse
                                                                      : CifarLabels::kHundredFine;
  const uint32_t published = spec.format == job::DataFormat::kCifar100 && !test ? 50000 : 10000;
  return ReadCifarFiles(names, labels, published, test ? spec.test_limit : spec.limit);
}

absl::StatusOr<LabelledImages> LoadImages(const job::DataSpec& spec, bool test) {
  if (spec.format == job::DataFormat::kSynthetic || spec.format == job::DataFormat::kSyntheticCifar)
    return Synthetic(spec, test);
  if (spec.format == job::DataFormat::kCifar10 || spec.format == job::DataFormat::kCifar100)
    return Cifar(spec, test);
  if (spec.format != job::DataFormat::kIdx) return UnknownFormat(spec);
  return test ? ReadIdxImages(Below(spec.path, spec.test_images),
                              Below(spec.path, spec.test_labels), spec.test_limit)
              : ReadIdxImages(Below(spec.path, spec.train_images),
                              Below(spec.path, spec.train_labels), spec.limit);
}

// Returns the job's normalization, or `usual` if the job has none.
absl::StatusOr<Normalization> NormalizationOf(const job::DataSpec& spec, uint32_t channels,
                                              Normalization usual) {
  const std::pair<const char*, const std::vector<double>*> given[] = {{"mean", &spec.mean},
                                                                      {"std", &spec.std}};
  for (const auto& [key, values] : given) {
    if (!values->empty() && values->size() != channels) {
      return absl::InvalidArgumentError(absl::StrCat("data.", key, " has ", values->size(),
                                                     " values, and the images have ", channels,
                                                     channels == 1 ? " channel" : " channels"));
    }
  }
  if (!spec.mean.empty()) usual.mean.assign(spec.mean.begin(), spec.mean.end());
  if (!spec.std.empty()) usual.deviation.assign(spec.std.begin(), spec.std.end());
  return usual;
}

}  // namespace

absl::StatusOr<TrainingImages> OpenTrainingImages(const job::DataSpec& spec) {
  TrainingImages training;
  Normalization usual;
  if (spec.format == job::DataFormat::kImageFolder) {
    absl::StatusOr<ImageFolder> folder =
        ListImageFolder(Below(spec.path, spec.train_folder), nullptr, spec.limit);
    if (!folder.ok()) return folder.status();
    training.source =
        std::make_unique<FolderImages>(*std::move(folder), spec.image_size, AugmentationOf(spec));
    usual.mean.assign(std::begin(kImageNetMean), std::end(kImageNetMean));
    usual.deviation.assign(std::begin(kImageNetDeviation), std::end(kImageNetDeviation));
  } else {
    absl::StatusOr<LabelledImages> images = LoadImages(spec, /*test=*/false);
    if (!images.ok()) return images.status();
    usual = MeasureNormalization(*images);
    training.source = std::make_unique<MemoryImages>(*std::move(images), AugmentationOf(spec));
  }
  absl::StatusOr<Normalization> normalization =
      NormalizationOf(spec, training.source->shape().channels, std::move(usual));
  if (!normalization.ok()) return normalization.status();
  training.normalization = *std::move(normalization);
  return training;
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenTestImages(const job::DataSpec& spec,
                                                            const ImageSource& training) {
  if (spec.format == job::DataFormat::kImageFolder) {
    absl::StatusOr<ImageFolder> folder = ListImageFolder(Below(spec.path, spec.test_folder),
                                                         &training.class_names(), spec.test_limit);
    if (!folder.ok()) return folder.status();
    return std::make_unique<FolderImages>(*std::move(folder), spec.image_size, Augmentation{});
  }
  absl::StatusOr<LabelledImages> images = LoadImages(spec, /*test=*/true);
  if (!images.ok()) return images.status();
  const PlaneShape shape = training.shape();
  if (images->height != shape.height || images->width != shape.width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "test images are ", images->height, " × ", images->width, " pixels, training images ",
        shape.height, " × ", shape.width, ": they do not belong to one data set"));
  }
  return std::make_unique<MemoryImages>(*std::move(images), Augmentation{});
}

}  // namespace sluice::worker
