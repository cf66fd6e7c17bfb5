#include "worker/train/evaluation.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "worker/train/image_batches.h"

namespace sluice {
namespace {

constexpr uint32_t kEvaluationBatch = 250;

}  // namespace

absl::StatusOr<Evaluation> Evaluate(Model* model, const LabelledImages& images,
                                    const Normalization& normalization,
                                    const std::atomic<bool>* stop) {
  const torch::NoGradGuard no_grad;
  model->eval();
  double loss = 0;
  int64_t correct = 0;
  std::vector<uint32_t> samples;
  for (uint32_t first = 0; first < images.count; first += kEvaluationBatch) {
    if (stop != nullptr && stop->load()) {
      model->train();
      return absl::CancelledError("stopped during the evaluation");
    }
    samples.resize(std::min(kEvaluationBatch, images.count - first));
    std::iota(samples.begin(), samples.end(), first);
    const ImageBatch batch = MakeBatch(images, normalization, samples);
    const at::Tensor scores = model->forward(batch.images);
    loss += torch::nn::functional::cross_entropy(
                scores, batch.labels,
                torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
                .item<double>();
    correct += (scores.argmax(1) == batch.labels).sum().item<int64_t>();
  }
  model->train();
  const double count = std::max<uint32_t>(images.count, 1);
  return Evaluation{.loss = loss / count, .accuracy = static_cast<double>(correct) / count};
}

}  // namespace sluice
