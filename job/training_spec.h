// SPDX-License-Identifier: Apache-2.0
// ModelSpec, DataSpec and TrainingSpec: the model, its data, and how each worker trains. Comments
// name the models and formats that use a field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/enums.h"
#include "protocol/job_defaults.h"

namespace sluice::job {

struct ModelSpec {
  // One of mlp, simple_cnn, resnet20, resnet18, resnet50, vgg16 and char_gpt.
  std::string name;
  std::vector<uint32_t> hidden{};  // mlp.
  std::string stem =
      protocol::defaults::kModelStem;  // resnet18, resnet50: one of auto, cifar and imagenet.
  bool batch_norm = false;             // vgg16.
  // char_gpt: this and the fields below.
  uint32_t layers = protocol::defaults::kModelLayers;
  uint32_t heads = protocol::defaults::kModelHeads;
  uint32_t width = protocol::defaults::kModelWidth;
  double dropout = 0;
};

struct DataSpec {
  DataFormat format = DataFormat::kCustom;
  std::string path;  // A folder; for text, a file.
  // idx: file names below `path`.
  std::string train_images, train_labels, test_images, test_labels;
  // Maximum number of training samples. 0 means all.
  uint32_t limit = 0;
  uint32_t test_limit = 0;
  std::string labels = protocol::defaults::kDataLabels;  // cifar100: either fine or coarse.
  // image_folder: folders below `path`. Without test_folder, the job runs no tests.
  std::string train_folder, test_folder;
  uint32_t image_size =
      protocol::defaults::kDataImageSize;               // image_folder: width and height in pixels.
  std::string level = protocol::defaults::kDataLevel;   // text: either char or byte.
  uint32_t context = protocol::defaults::kDataContext;  // text: number of tokens.
  double validation_fraction =
      protocol::defaults::kDataValidationFraction;  // text: share of the file, taken from its end.
  uint32_t crop_padding = 0;                        // In pixels.
  bool flip = false;
  // image_folder: smallest share of the image's area in a crop. 0 disables random crops of this
  // kind.
  double random_resized_crop = 0;
  // Per channel. If they are empty, the measured or usual values of the data set apply.
  std::vector<double> mean, std;
  uint32_t prefetch = protocol::defaults::kDataPrefetch;  // Number of batches.

  bool has_test_data() const;
};

struct TrainingSpec {
  uint32_t batch_size_per_worker = 0;
  uint32_t gradient_accumulation_steps = protocol::defaults::kGradientAccumulationSteps;
  uint32_t epochs = 0;  // Exactly one of `epochs` and `steps` is not 0.
  uint64_t steps = 0;
  double label_smoothing = 0;
  double ema_decay = 0;  // 0 disables averaging.
  Precision precision = Precision::kFp32;
  std::string device = protocol::defaults::kDevice;  // One of auto, cpu, cuda and cuda:N.
  uint32_t gpus_per_worker = protocol::defaults::kGpusPerWorker;
  EncodeLocation encode_location = EncodeLocation::kDevice;
};

}  // namespace sluice::job
