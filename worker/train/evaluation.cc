#include "worker/train/evaluation.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace sluice {
namespace {

constexpr uint32_t kEvaluationBatch = 250;

}  // namespace

absl::StatusOr<Evaluation> Evaluate(Model* model, const Dataset& data,
                                    const std::atomic<bool>* stop) {
  const torch::NoGradGuard no_grad;
  model->eval();
  double loss = 0;
  int64_t correct = 0;
  int64_t count = 0;
  absl::Status status;
  std::vector<uint32_t> samples;
  for (uint32_t first = 0; first < data.size(); first += kEvaluationBatch) {
    if (stop != nullptr && stop->load()) {
      status = absl::CancelledError("stopped during the evaluation");
      break;
    }
    samples.resize(std::min(kEvaluationBatch, data.size() - first));
    std::iota(samples.begin(), samples.end(), first);
    const absl::StatusOr<Batch> batch = data.MakeBatch(samples, {});
    status = batch.status();
    if (!status.ok()) break;
    const at::Tensor scores = model->forward(batch->inputs).flatten(0, -2);
    const at::Tensor targets = batch->targets.flatten();
    loss += torch::nn::functional::cross_entropy(
                scores, targets,
                torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
                .item<double>();
    correct += (scores.argmax(1) == targets).sum().item<int64_t>();
    count += targets.numel();
  }
  model->train();
  if (!status.ok()) return status;
  const auto all = static_cast<double>(std::max<int64_t>(count, 1));
  return Evaluation{.loss = loss / all, .accuracy = static_cast<double>(correct) / all};
}

}  // namespace sluice
