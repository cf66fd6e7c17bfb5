// SPDX-License-Identifier: Apache-2.0
#include "worker/train/train.h"

#include <utility>

#include "worker/torch/torch_status.h"
#include "worker/train/training_run.h"

namespace sluice::worker {

absl::StatusOr<std::shared_ptr<const TrainingData>> LoadTrainingData(const job::JobSpec& spec,
                                                                     uint32_t rank) {
  return TorchStatus("LibTorch", [&]() -> absl::StatusOr<std::shared_ptr<const TrainingData>> {
    // With elastic membership, any rank may have to test.
    const bool may_test = rank == 0 || spec.exchange.elastic();
    absl::StatusOr<Datasets> sets = OpenDatasets(spec.data, may_test);
    if (!sets.ok()) return sets.status();
    return std::make_shared<const TrainingData>(TrainingData{*std::move(sets)});
  });
}

absl::StatusOr<TrainReport> RunTraining(const job::JobSpec& spec, uint32_t rank, JobClient* client,
                                        const TrainOptions& options, const Logger& logger) {
  return TorchStatus("training failed", [&]() -> absl::StatusOr<TrainReport> {
    TrainingRun run(spec, rank, options, logger);
    absl::Status status = TorchStatus("LibTorch", [&] { return run.Prepare(); });
    if (!status.ok()) return status;
    if (options.stop != nullptr && options.stop->load()) return absl::CancelledError("stopped");
    absl::StatusOr<TrainReport> report =
        TorchStatus("LibTorch", [&]() -> absl::StatusOr<TrainReport> {
          if (absl::Status joined = run.Join(client); !joined.ok()) return joined;
          if (absl::Status restored = run.Restore(); !restored.ok()) return restored;
          if (absl::Status trained = run.Train(); !trained.ok()) return trained;
          return run.Finish();
        });
    if (!report.ok() && !IsRollback(report.status())) client->Abandon(report.status().message());
    return report;
  });
}

}  // namespace sluice::worker
