// ModelSpec and DataSpec: what is trained, and on what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::job {

struct ModelSpec {
  std::string name;                // mlp, simple_cnn, resnet20, resnet18, resnet50, vgg16, char_gpt
  std::vector<uint32_t> hidden{};  // mlp
  std::string stem = "auto";       // resnet18, resnet50: auto, cifar, imagenet
  bool batch_norm = false;         // vgg16
  // char_gpt
  uint32_t layers = 4;
  uint32_t heads = 4;
  uint32_t width = 128;
  double dropout = 0;
};

struct DataSpec {
  std::string format;  // idx, cifar10, cifar100, image_folder, text, or made up: synthetic,
                       // synthetic_cifar, synthetic_text.
  std::string path;    // A folder; of text the file.
  std::string train_images, train_labels, test_images, test_labels;  // idx: file names below path.
  uint32_t limit = 0;  // Training samples at most; 0: all.
  uint32_t test_limit = 0;
  std::string labels = "fine";            // cifar100: or coarse.
  std::string train_folder, test_folder;  // image_folder: below path; no test_folder: no tests.
  uint32_t image_size = 224;              // image_folder: pixels, both ways.
  std::string level = "char";             // text: or byte.
  uint32_t context = 128;                 // text: tokens.
  double validation_fraction = 0.1;       // text: its end.
  uint32_t crop_padding = 0;              // Pixels.
  bool flip = false;
  double random_resized_crop = 0;  // image_folder: least share of the area; 0: off.
  std::vector<double> mean, std;   // Of each channel; empty: measured or usual.
  uint32_t prefetch = 2;           // Batches.

  bool has_test_data() const;
};

}  // namespace sluice::job
