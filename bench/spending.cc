// What one threshold for all tensors loses, against one density for all, at equal bytes: on the
// accumulators |gradient + residual| of models that train, sparse with error feedback.
#include "server/control/spending.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "server/control/codec_price.h"
#include "worker/data/dataset.h"
#include "worker/models/make_model.h"

namespace sluice {
namespace {

constexpr uint32_t kBatch = 64;
constexpr double kTrainedDensity = 0.01;
constexpr double kDensities[] = {0.001, 0.01, 0.1};
constexpr int kBisections = 60;

const CodecSpec kSparse{.codec = CodecId::kTopK, .level = 0.01, .values = ValueFormat::kInt4};

struct Trial {
  std::string name{};
  ModelSpec model{};
  DataSpec data{};
  double rate = 0;
};

std::vector<Trial> Trials(const std::string& fashion_mnist) {
  Trial cnn;
  cnn.name = cnn.model.name = "simple_cnn";
  cnn.rate = 0.05;
  cnn.data.format = "synthetic";
  if (!fashion_mnist.empty()) {
    cnn.data.format = "idx";
    cnn.data.path = fashion_mnist;
    cnn.data.train_images = "train-images-idx3-ubyte.gz";
    cnn.data.train_labels = "train-labels-idx1-ubyte.gz";
  }
  Trial gpt;
  gpt.name = gpt.model.name = "char_gpt";
  gpt.rate = 0.1;
  gpt.data.format = "synthetic_text";
  gpt.data.context = 64;
  return {cnn, gpt};
}

using Accumulators = std::vector<std::vector<float>>;  // By tensor.

// Bytes and lost energy where of each tensor the values from its threshold on are sent.
struct Outcome {
  double bytes = 0;
  double lost = 0;  // Share of all energy.
};

Outcome Send(const Accumulators& all, const std::function<double(size_t)>& threshold_of) {
  Outcome outcome;
  double energy = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const double threshold = threshold_of(i);
    size_t sent = 0;
    for (const float value : all[i]) {
      const double square = double{value} * double{value};
      energy += square;
      if (std::fabs(value) >= threshold) {
        ++sent;
      } else {
        outcome.lost += square;
      }
    }
    const auto count = static_cast<double>(all[i].size());
    outcome.bytes += count * SparseBits(static_cast<double>(sent) / count, kSparse.values) / 8;
  }
  outcome.lost /= energy;
  return outcome;
}

// Of magnitudes, descending: the least that is among the first `density` of them.
double ThresholdOf(const std::vector<float>& descending, double density) {
  const double place = std::ceil(density * static_cast<double>(descending.size())) - 1;
  return descending[static_cast<size_t>(std::max(place, 0.0))];
}

Outcome SendEvenly(const Accumulators& all, const Accumulators& descending, double density) {
  return Send(all, [&](size_t i) { return ThresholdOf(descending[i], density); });
}

// One density for all tensors, the largest whose bytes are no more than that.
Outcome SendEvenlyIn(const Accumulators& all, const Accumulators& descending, double bytes) {
  double low = 1e-6, high = 1;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = std::sqrt(low * high);
    (SendEvenly(all, descending, middle).bytes <= bytes ? low : high) = middle;
  }
  return SendEvenly(all, descending, low);
}

void Compare(const std::string& name, int step, const Accumulators& all) {
  std::vector<ControlledTensor> tensors;
  std::vector<OctaveHistogram> histograms(all.size());
  Accumulators descending = all;
  for (size_t i = 0; i < all.size(); ++i) {
    tensors.push_back({.elements = all[i].size()});
    histograms[i].Add(all[i]);
    for (float& value : descending[i]) value = std::fabs(value);
    std::sort(descending[i].begin(), descending[i].end(), std::greater<>());
  }
  for (const double density : kDensities) {
    const double budget = SendEvenly(all, descending, density).bytes;
    const Spent spent = SpendOnLargest(
        tensors, histograms, {.sparse = kSparse, .density_min = 1e-5, .density_max = 1}, budget);
    const Outcome layers = Send(all, [&](size_t i) { return double{spent.coding.thresholds[i]}; });
    // Histograms are of octaves, so the bytes are not quite those of the budget.
    const Outcome even = SendEvenlyIn(all, descending, layers.bytes);
    std::printf("| `%s` | %d | %.3g %% | %.0f | %.0f | %.4f | %.4f | %.3f | %.4f |\n", name.c_str(),
                step, 100 * density, budget, layers.bytes, even.lost, layers.lost,
                layers.lost / even.lost, spent.error);
  }
}

// Sends the largest of what there is: takes them from the accumulators and descends by them.
void TakeStep(double rate, const std::vector<at::Tensor>& parameters, Accumulators* all) {
  std::vector<float> magnitudes;
  for (const std::vector<float>& values : *all) {
    for (const float value : values) magnitudes.push_back(std::fabs(value));
  }
  const auto kept = static_cast<size_t>(kTrainedDensity * static_cast<double>(magnitudes.size()));
  std::nth_element(magnitudes.begin(), magnitudes.begin() + static_cast<ptrdiff_t>(kept),
                   magnitudes.end(), std::greater<>());
  const float threshold = magnitudes[kept];
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto* const values = parameters[i].mutable_data_ptr<float>();
    for (size_t j = 0; j < (*all)[i].size(); ++j) {
      float& owed = (*all)[i][j];
      if (std::fabs(owed) < threshold) continue;
      values[j] -= static_cast<float>(rate) * owed;
      owed = 0;
    }
  }
}

absl::Status Run(const Trial& trial, int steps) {
  torch::manual_seed(1);
  const absl::StatusOr<Datasets> data = OpenDatasets(trial.data, /*with_test=*/false);
  if (!data.ok()) return data.status();
  const absl::StatusOr<std::shared_ptr<Model>> model =
      MakeModel(trial.model, data->training->shape());
  if (!model.ok()) return model.status();
  const std::vector<at::Tensor> parameters = (*model)->parameters();
  Accumulators all;
  for (const at::Tensor& parameter : parameters) {
    all.emplace_back(static_cast<size_t>(parameter.numel()));
  }
  std::vector<uint32_t> samples(kBatch);
  for (int step = 1; step <= steps; ++step) {
    for (uint32_t& sample : samples) {
      sample = static_cast<uint32_t>(torch::randint(data->training->size(), {1}).item<int64_t>());
    }
    const absl::StatusOr<Batch> batch = data->training->MakeBatch(samples, {});
    if (!batch.ok()) return batch.status();
    (*model)->zero_grad();
    const at::Tensor scores = (*model)->forward(batch->inputs);
    torch::nn::functional::cross_entropy(scores.flatten(0, -2), batch->targets.flatten())
        .backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor gradient = parameters[i].grad().contiguous();
      const auto* const values = gradient.const_data_ptr<float>();
      for (size_t j = 0; j < all[i].size(); ++j) all[i][j] += values[j];
    }
    if (step == steps / 10 || step == steps) Compare(trial.name, step, all);
    TakeStep(trial.rate, parameters, &all);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  int steps = 0;
  if (argc > 3 || (argc > 1 && (!absl::SimpleAtoi(argv[1], &steps) || steps < 10))) {
    std::fprintf(stderr,
                 "usage: spending_bench [STEPS [FASHION_MNIST]]\n"
                 "STEPS of training (at least 10; 200 usually), with %g %% of all values sent;\n"
                 "FASHION_MNIST: the folder of its files; made-up images otherwise.\n",
                 100 * kTrainedDensity);
    return 2;
  }
  if (steps == 0) steps = 200;
  at::set_num_threads(1);
  std::printf(
      "| model | step | density | budget | bytes | NMSE, one density | one threshold | quotient | "
      "as "
      "histograms tell |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const Trial& trial : Trials(argc == 3 ? argv[2] : "")) {
    if (const absl::Status status = Run(trial, steps); !status.ok()) {
      std::fprintf(stderr, "spending_bench: %s\n", std::string(status.message()).c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
