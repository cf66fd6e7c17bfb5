// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "worker/train/precision.h"

namespace sluice::worker {
namespace {

constexpr uint32_t kSamplesMost = 250;
constexpr uint64_t kElementsMost = 1 << 23;  // Elements per batch: 32 MiB of fp32.
constexpr uint64_t kElementsOfToken = 256;   // Each token becomes a row of the model's width.

}  // namespace

uint32_t EvaluationBatch(const SampleShape& shape) {
  const uint64_t elements = shape.is_tokens()
                                ? kElementsOfToken * shape.context
                                : uint64_t{shape.channels} * shape.height * shape.width;
  const uint64_t fitting = kElementsMost / std::max<uint64_t>(elements, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 1, kSamplesMost));
}

absl::StatusOr<Evaluation> Evaluate(Model* model, const Dataset& data,
                                    const std::atomic<bool>* stop, at::ScalarType type) {
  const torch::NoGradGuard no_grad;
  model->eval();
  double loss = 0;
  int64_t correct = 0;
  int64_t count = 0;
  absl::Status status;
  std::vector<uint32_t> samples;
  const uint32_t most = EvaluationBatch(data.shape());
  for (uint32_t first = 0; first < data.size(); first += most) {
    if (stop != nullptr && stop->load()) {
      status = absl::CancelledError("stopped during the evaluation");
      break;
    }
    samples.resize(std::min(most, data.size() - first));
    std::iota(samples.begin(), samples.end(), first);
    const absl::StatusOr<Batch> batch = data.MakeBatch(samples, {});
    status = batch.status();
    if (!status.ok()) break;
    const at::Tensor scores = Scores(model, batch->inputs, type).flatten(0, -2);
    const at::Tensor targets = batch->targets.flatten().to(scores.device());
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

}  // namespace sluice::worker
