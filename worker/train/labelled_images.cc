#include "worker/train/labelled_images.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/train/idx_file.h"
#include "worker/train/synthetic_images.h"

namespace sluice {
namespace {

constexpr uint32_t kSyntheticTraining = 4096;
constexpr uint32_t kSyntheticTest = 1024;
constexpr uint32_t kSyntheticMax = 1 << 20;

std::string Below(const std::string& folder, const std::string& name) {
  if (folder.empty() || (!name.empty() && name.front() == '/')) return name;
  return absl::StrCat(folder, folder.back() == '/' ? "" : "/", name);
}

absl::Status UnknownFormat(const DataSpec& spec) {
  if (spec.format == "custom") {
    return absl::InvalidArgumentError(
        "the job's data is custom: its workers are a program of your own that brings its data (see "
        "examples/own_loop.cc), not sluice-worker");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("data format \"", spec.format, "\" is not known: use idx or synthetic"));
}

absl::StatusOr<LabelledImages> Synthetic(uint32_t first, uint32_t wanted, uint32_t usual) {
  if (wanted > kSyntheticMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kSyntheticMax, " synthetic images can be made, not ", wanted));
  }
  return MakeSyntheticImages(first, wanted > 0 ? wanted : usual);
}

}  // namespace

Normalization MeasureNormalization(const LabelledImages& images) {
  std::array<uint64_t, 256> counts{};
  for (const uint8_t pixel : images.pixels) ++counts[pixel];
  uint64_t sum = 0;
  uint64_t squares = 0;
  for (uint64_t value = 0; value < counts.size(); ++value) {
    sum += counts[value] * value;
    squares += counts[value] * value * value;
  }
  const auto n = static_cast<double>(images.pixels.size());
  if (n == 0) return {};
  const double mean = static_cast<double>(sum) / n;
  const double variance = static_cast<double>(squares) / n - mean * mean;
  Normalization found;
  found.mean = static_cast<float>(mean / 255);
  // All pixels equal: nothing to scale.
  if (variance > 0) found.deviation = static_cast<float>(std::sqrt(variance) / 255);
  return found;
}

absl::StatusOr<LabelledImages> LoadTrainingImages(const DataSpec& spec) {
  if (spec.format == "synthetic") return Synthetic(0, spec.limit, kSyntheticTraining);
  if (spec.format != "idx") return UnknownFormat(spec);
  return ReadIdxImages(Below(spec.path, spec.train_images), Below(spec.path, spec.train_labels),
                       spec.limit);
}

absl::StatusOr<LabelledImages> LoadTestImages(const DataSpec& spec) {
  if (spec.format == "synthetic") return Synthetic(kSyntheticMax, spec.test_limit, kSyntheticTest);
  if (spec.format != "idx") return UnknownFormat(spec);
  return ReadIdxImages(Below(spec.path, spec.test_images), Below(spec.path, spec.test_labels),
                       spec.test_limit);
}

}  // namespace sluice
